"""The REST calls about daemons."""

from __future__ import annotations

from uuid import UUID

from hetuflow_core.client.calls import get, pages, segment, send
from hetuflow_core.client.exchange import Emit, Plan, Stream
from hetuflow_core.errors import NotFound
from hetuflow_core.resources.daemons import Daemon, DaemonDetail, DaemonRun, RestartRequest, ScaleRequest
from hetuflow_core.resources.pages import Page


def daemons(
    *, namespace: str | None = None, job: str | None = None, page_size: int | None = None
) -> Stream[Daemon]:
    """Daemons by namespace, job and name; fetched page by page as they are iterated over."""
    query = {"namespace": namespace, "job": job, "limit": page_size}
    return (yield from pages("/daemons", query, Page[Daemon]))


def daemon(namespace: str, job: str, name: str | None = None) -> Plan[DaemonDetail]:
    """The daemon of this job and name, with its slots; the name may be left out if the job has one only."""
    page = yield from get("/daemons", Page[Daemon], query={"namespace": namespace, "job": job})
    found = [
        one for one in page.items if (one.namespace, one.job) == (namespace, job) and name in {None, one.name}
    ]
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise NotFound(f"The job {job!r} has several daemons: name one of {names}.")
    if not found:
        which = f"no daemon {name!r}" if name else "no daemon"
        raise NotFound(
            f"The job {job!r} of the namespace {namespace!r} has {which}: "
            f"`hetuflow daemon list -n {namespace}` shows what there is."
        )
    return (yield from daemon_by_id(found[0].id))


def daemon_by_id(daemon_id: UUID | str) -> Plan[DaemonDetail]:
    """A daemon with its slots; its id is that of its schedule."""
    return (yield from get(f"/daemons/{segment(daemon_id)}", DaemonDetail))


def stop_daemon(daemon_id: UUID | str) -> Plan[DaemonDetail]:
    """End its instances, and start none until it is started."""
    return (yield from send("POST", f"/daemons/{segment(daemon_id)}/stop", DaemonDetail, repeatable=True))


def start_daemon(daemon_id: UUID | str) -> Plan[DaemonDetail]:
    return (yield from send("POST", f"/daemons/{segment(daemon_id)}/start", DaemonDetail, repeatable=True))


def scale_daemon(daemon_id: UUID | str, replicas: int) -> Plan[DaemonDetail]:
    """Change how many instances there are; the highest slots go first."""
    path = f"/daemons/{segment(daemon_id)}/scale"
    return (yield from send("POST", path, DaemonDetail, ScaleRequest(replicas), repeatable=True))


def restart_daemon(daemon_id: UUID | str, slot: int | None = None) -> Plan[DaemonDetail]:
    """Start all instances anew, a few at a time, or that of one slot."""
    path = f"/daemons/{segment(daemon_id)}/restart"
    return (yield from send("POST", path, DaemonDetail, RestartRequest(slot)))


def daemon_history(
    daemon_id: UUID | str, *, slot: int | None = None, page_size: int | None = None
) -> Stream[DaemonRun]:
    """The instances a daemon has and had, newest first, of one slot if it is named."""
    path, cursor = f"/daemons/{segment(daemon_id)}/history", None
    while True:
        page: Page[DaemonRun] = yield from get(
            path, Page[DaemonRun], query={"limit": page_size, "cursor": cursor}
        )
        for run in page.items:
            if slot in {None, run.slot}:
                yield Emit(run)
        cursor = page.next_cursor
        if cursor is None:
            return

"""Whether each fault hit anything: what had no effect proves nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from hetuflow_selftest.oracle.evidence import Histories, Run, Window
from hetuflow_selftest.oracle.verdict import Anomaly, Outcome, Verdict

# None: it had its effect; else what was wanting.
Effect = Callable[[Histories, Window], str | None]

# How long before a fault its victim must have done something to count as busy.
_LATELY = 10.0
_OK = 200
# How many things each of the others has begun since the victim's last, for that to have been its last.
_WENT_ON = 6
# Seconds until a process says again that it lives.
_NEXT_SIGN = 0.6
# How long after the signal a process may still be at the end of something.
_LAST_COMMIT = 0.5
# With it a server is on record, which may be just after it is ready.
_FIRST_HEARTBEAT = 3.0
# Seconds that no slow line explains.
_OFF = 15


def effects(histories: Histories) -> list[Verdict]:
    verdicts = [_verdict(histories, window) for window in histories.windows]
    return verdicts + [
        Verdict(f"fault: {record['fault']}", Outcome.UNKNOWN, 0, f"not done: {record['why']}")
        for record in histories.nemesis
        if record["kind"] == "unsupported"
    ]


def _verdict(histories: Histories, window: Window) -> Verdict:
    wanting = _EFFECTS[window.fault](histories, window)
    name = f"fault: {window.fault}"
    lasted = f"{window.victim}, {window.ended - window.began:.1f} s"
    if wanting is None:
        return Verdict(name, Outcome.PASS, 1, f"{lasted}, was felt")
    return Verdict(
        name,
        Outcome.UNKNOWN,
        1,
        f"{lasted}, had no effect: {wanting}",
        [Anomaly(wanting, window.began, window.victim)],
    )


def _leader_changed(histories: Histories, window: Window) -> str | None:
    """The victim led, another term came while the fault was there, and fires were made after that."""
    if window.facts.get("epoch") is None:
        return "the victim did not lead"
    later = [row for row in histories.rows("leader_term") if row["epoch"] > window.facts["epoch"]]
    took_over = min((row["committed_at"] for row in later), default=inf)
    if took_over - histories.wall_minus_boottime > window.ended:
        return "nobody else has led"  # or another fault made somebody
    if not any(row["created_at"] > took_over for row in histories.tasks.values() if row["schedule_id"]):
        return "nothing was generated afterwards"
    return None


def _line_of_leader_cut(histories: Histories, window: Window) -> str | None:
    if not window.facts.get("felt"):
        return "nothing was on the line"
    return _leader_changed(histories, window)


def _server_was_used(histories: Histories, window: Window) -> str | None:
    number = int(window.victim.rpartition("-")[2])
    if any(
        record["server"] == number and window.began - _LATELY <= record["at"] <= window.began
        for record in histories.proxy
        if record["kind"] == "exchange"
    ):
        return None
    return "no agent had spoken to the victim"


def _line_of_server_cut(histories: Histories, window: Window) -> str | None:
    return "nothing was on the line" if not window.facts.get("felt") else _server_was_used(histories, window)


def _all_restarted(histories: Histories, window: Window) -> str | None:
    """At every address another process has begun meanwhile; other faults replace servers too."""
    servers, offset = histories.rows("server"), histories.wall_minus_boottime
    replaced = {
        row["url"]
        for row in servers
        if window.began <= row["started_at"] - offset <= window.ended + _FIRST_HEARTBEAT
    }
    return None if replaced and replaced == {row["url"] for row in servers} else "a server was not replaced"


def _task_was_hit(histories: Histories, window: Window) -> str | None:
    return None if hit(histories, window) else "nothing ran on the victim"


def hit(histories: Histories, window: Window) -> list[Run]:
    """Processes of the victim's that lived when the fault began, as far as they have told."""
    victims = window.victim.split(", ")
    return [
        run
        for run in histories.runs
        if histories.agents.get(run.instance) in victims and run.started <= window.began <= _lived(run)
    ]


def _lived(run: Run) -> float:
    """What was killed has lived a little longer than it has told of."""
    return run.seen if run.ended is not None else run.seen + _NEXT_SIGN


def _task_died(histories: Histories, window: Window) -> str | None:
    if not window.facts.get("killed"):
        return "there was no keeper"
    return None if _lost(histories, window) else "nothing that ran has died of it"


def _task_was_lost(histories: Histories, window: Window) -> str | None:
    return None if _lost(histories, window) else "nothing that stood still was given up"


def _lost(histories: Histories, window: Window) -> list[Run]:
    given_up = {row["id"] for row in histories.rows("instance") if row["status"] == "lost"}
    return [run for run in hit(histories, window) if run.instance in given_up and run.ended is None]


def _line_of_agent_cut(histories: Histories, window: Window) -> str | None:
    return "nothing was on the line" if not window.facts.get("felt") else _task_was_hit(histories, window)


def _answers_were_lost(histories: Histories, _: Window) -> str | None:
    """An end was written down, and whoever had reported it did not hear so."""
    lost = [
        one
        for record in histories.proxy
        if record["kind"] == "exchange" and not record["passed"] and record["status"] == _OK
        for one in record.get("reports", ())
        if one["type"] == "finish" and one["outcome"] == "ok"
    ]
    return None if lost else "no answer was lost that said yes to an end"


def _agent_took_no_work(histories: Histories, window: Window) -> str | None:
    """It began things before, and from some time on none, while others went on."""
    started: dict[str, list[float]] = defaultdict(list)
    for record in histories.proxy:
        for one in record.get("reports", ()):
            if one["type"] == "start" and one["outcome"] == "ok" and record["at"] <= window.ended:
                started[record["link"]].append(record["at"])
    own = started.pop(window.victim, [])
    if not any(window.began - _LATELY <= at <= window.began for at in own):
        return "the victim had begun nothing before"
    last = max(window.began, *own)
    since = sum(at > last for others in started.values() for at in others)
    if since < _WENT_ON * max(1, len(started)):
        return "the victim went on taking work"
    return None


def _clock_was_off(histories: Histories, window: Window) -> str | None:
    """The agent has said the wrong time; a server says nobody but the database's, so that cannot be heard."""
    agent = window.victim.split(", ")[1]
    told = [record for record in histories.proxy if window.began <= record["at"] <= window.ended]
    if any(abs(record.get("agent_off", 0)) > _OFF and record["link"] == agent for record in told):
        return None
    return f"{agent} was never heard with a wrong clock"


def _database_was_away(histories: Histories, window: Window) -> str | None:
    blind = [record for record in histories.observer if record["kind"] == "blind"]
    if any(window.began <= record["at"] <= window.ended + _LATELY for record in blind):
        return None
    return "nobody noticed"


def _database_stood_still(histories: Histories, window: Window) -> str | None:
    """Fires were committed before, and none as long as it stood still."""
    committed = [
        row["committed_at"] - histories.wall_minus_boottime for row in histories.rows("leader_write")
    ]
    if not any(window.began - _LATELY <= at <= window.began for at in committed):
        return "nothing was written before"
    if any(window.began + _LAST_COMMIT <= at <= window.ended for at in committed):
        return "it went on writing"
    return None


_EFFECTS: Final[Mapping[str, Effect]] = {
    "kill-leader": _leader_changed,
    "stop-leader": _leader_changed,
    "kill-server": _server_was_used,
    "stop-server": _server_was_used,
    "restart-servers": _all_restarted,
    "cut-leader": _line_of_leader_cut,
    "cut-leader-there": _line_of_leader_cut,
    "cut-leader-back": _line_of_leader_cut,
    "cut-server": _line_of_server_cut,
    "kill-agent": _task_was_hit,
    "stop-agent": _task_was_hit,
    "kill-keeper": _task_died,
    "stop-keeper": _task_was_hit,
    "pause-host": _task_was_lost,
    "cut-agent": _line_of_agent_cut,
    "cut-agent-there": _line_of_agent_cut,
    "cut-agent-back": _line_of_agent_cut,
    "lose-replies": _answers_were_lost,
    "fill-disk": _agent_took_no_work,
    "step-clocks": _clock_was_off,
    "crash-postgres": _database_was_away,
    "pause-postgres": _database_stood_still,
}

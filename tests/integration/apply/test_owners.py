"""Owners: whose files define what, and what is removed once they no longer mention it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from hetuflow_core.access.permissions import Permission, Rights
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Conflict, Denied, Invalid
from hetuflow_core.resources.apply import ApplyRequest, ApplyResult, FieldChange
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal, PrincipalKind
from tests.support.queue.engine import WHO, Engine, put_fires

LIMIT = {"kind": "limit", "name": "tool:a", "max": 3}
CALENDAR = {"kind": "calendar", "name": "closed", "dates": ["2027-01-01"]}


def job(name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "job", "name": name, "run": {"command": ["true"]}, **spec}


async def apply(
    engine: Engine, *documents: dict[str, Any], owner: str | None = "ci", dry_run: bool = False, **asked: Any
) -> ApplyResult:
    request = ApplyRequest(list(documents), owner, **asked)
    return await engine.applying.apply_request(WHO, request, dry_run=dry_run)


def told(result: ApplyResult) -> dict[str, str]:
    return {f"{item.kind} {item.name}": item.action.value for item in result.items}


def there(engine: Engine) -> set[str]:
    names = engine.all(
        "SELECT name FROM sched_job WHERE deleted_at IS NULL "
        "UNION ALL SELECT name FROM sched_calendar UNION ALL SELECT scope FROM sched_limit WHERE named"
    )
    return {row["name"] for row in names}


async def test_an_owner_is_written_down_once_and_by_hand_left_alone(scheduling: Engine) -> None:
    assert told(await apply(scheduling, job("a"), owner=None)) == {"job a": "created"}
    (item,) = (await apply(scheduling, job("a"))).items
    assert (item.action, item.version) == ("changed", 1), "an owner is no part of a version"
    assert item.fields == [FieldChange("owner", None, "ci")]
    for owner in ("ci", None):
        assert told(await apply(scheduling, job("a"), owner=owner)) == {"job a": "unchanged"}
    (shown,), _ = await scheduling.applying.list_jobs(
        WHO, namespace=None, name="a", after=None, limit=5, cap=10
    )
    assert shown.owner == "ci"


async def test_only_what_belongs_to_the_owner_is_removed(scheduling: Engine) -> None:
    uses = job("b", limits=["tool:a"], schedules=[{"name": "s", "every": "1h", "calendar": "closed"}])
    await apply(scheduling, job("hand"), owner=None)
    await apply(scheduling, job("other"), owner="others/repository")
    await apply(scheduling, job("a"), uses, LIMIT, CALENDAR)
    schedule = await scheduling.schedule("s", job="b")
    put_fires(scheduling, schedule.id, [60])

    planned = await apply(scheduling, job("a"), prune=True, dry_run=True)
    assert planned.unowned[0].name == "hand"
    removed = {item.name: item for item in planned.items if item.action == "removed"}
    assert removed.keys() == {"b", "tool:a", "closed"}
    assert removed["b"].schedules[0].fires is not None
    assert removed["b"].schedules[0].fires.removed == 7 * 24
    assert removed["b"].instances is not None
    assert removed["b"].instances.withdrawn == 1
    without = await apply(scheduling, job("a"), dry_run=True)
    assert {one.name for one in without.left_over} == {"b", "tool:a", "closed"}
    assert there(scheduling) == {"hand", "other", "a", "b", "tool:a", "closed"}

    done = await apply(scheduling, job("a"), prune=True)
    assert told(done) == {item.kind + " " + item.name: item.action.value for item in planned.items}
    assert there(scheduling) == {"hand", "other", "a"}
    assert scheduling.all("SELECT id FROM sched_task") == []
    assert told(await apply(scheduling, job("a"), prune=True)) == {"job a": "unchanged"}


async def test_a_plan_tells_what_is_nobodys(scheduling: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    await apply(scheduling, job("hand"), LIMIT, owner=None)
    await apply(scheduling, job("other"), owner="others")

    async def nobodys(*documents: dict[str, Any], owner: str | None = None) -> list[str]:
        planned = await apply(scheduling, *documents, owner=owner, dry_run=True)
        return [*(one.name for one in planned.unowned), *(["more"] if planned.unowned_capped else [])]

    assert await nobodys(job("hand"), job("new"), job("other")) == ["hand", "new", "tool:a"]
    assert await nobodys(job("hand"), job("new"), owner="ci") == ["tool:a"]
    assert await nobodys({"kind": "namespace", "name": "elsewhere"}) == []
    assert (await apply(scheduling, job("hand"), owner=None)).unowned == [], "that is for plans"
    monkeypatch.setattr("hetuflow_server.apply.owners._MOST_UNOWNED", 1)
    assert await nobodys(job("new")) == ["hand", "more"]


async def test_a_plan_names_only_what_one_may_see(scheduling: Engine) -> None:
    await apply(scheduling, job("hand"), LIMIT, owner=None)
    await apply(scheduling, job("mine"), {**LIMIT, "name": "tool:b"})
    rights = Rights(frozenset({Permission.JOBS_READ}))
    reader = RequestContext.internal(Principal(uuid4(), PrincipalKind.SYSTEM, "reader", rights))
    for prune in (False, True):
        request = ApplyRequest([job("new")], "ci", prune=prune)
        planned = await scheduling.applying.apply_request(reader, request, dry_run=True)
        assert [one.name for one in planned.unowned] == ["hand"]
        told = {one.name for one in (*planned.items, *planned.left_over)}
        assert told == {"new", "mine"}


async def test_what_others_need_is_kept_and_said(scheduling: Engine) -> None:
    await apply(scheduling, LIMIT, CALENDAR)
    await apply(scheduling, job("by-hand", limits=["tool:a"]), owner=None)
    result = await apply(scheduling, prune=True)
    assert told(result) == {"calendar closed": "removed"}
    (kept,) = result.kept
    assert kept.name == "tool:a"
    assert "by-hand" in kept.why
    assert "tool:a" in there(scheduling)


async def test_what_is_made_anew_belongs_to_nobody(scheduling: Engine) -> None:
    await apply(scheduling, job("a"), LIMIT)
    await scheduling.schedules.delete_job(WHO, (await scheduling.apply(name="a")))
    await apply(scheduling, job("a"), owner=None)
    assert told(await apply(scheduling, LIMIT, prune=True)) == {"limit tool:a": "unchanged"}
    assert "a" in there(scheduling)


async def test_what_belongs_to_another_is_refused_or_taken_over(scheduling: Engine) -> None:
    await apply(scheduling, job("a"), owner="others")
    with pytest.raises(Conflict) as refused:
        await apply(scheduling, job("a", priority=1), job("b"))
    assert refused.value.code == "owner.other"
    assert "others" in str(refused.value.faults[0])
    assert there(scheduling) == {"a"}, "nothing is changed"
    (item,) = (await apply(scheduling, job("a"), take_over=True)).items
    assert item.fields == [FieldChange("owner", "others", "ci")]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"owner": None, "prune": True}, "owner.missing"),
        ({"owner": None, "take_over": True}, "owner.missing"),
        ({"owner": "no spaces"}, "owner.invalid"),
        ({"owner": ""}, "owner.invalid"),
    ],
)
async def test_bad_owners_are_refused(scheduling: Engine, asked: dict[str, Any], code: str) -> None:
    with pytest.raises(Invalid) as refused:
        await apply(scheduling, job("a"), **asked)
    assert refused.value.code == code
    assert there(scheduling) == set()


async def test_pruning_stays_within_what_one_may_write(scheduling: Engine) -> None:
    await scheduling.applying.apply(WHO, [{"kind": "namespace", "name": "b"}], dry_run=False)
    await apply(scheduling, job("here"), job("there", namespace="b"))
    editor = RequestContext.internal(Principal.with_role("editor", Role.EDITOR, "default"))
    request = ApplyRequest([], "ci", prune=True)
    done = await scheduling.applying.apply_request(editor, request, dry_run=False)
    assert [item.name for item in done.items] == ["here"], "of other namespaces it knows nothing"
    viewer = RequestContext.internal(Principal.with_role("viewer", Role.VIEWER, "b"))
    with pytest.raises(Denied):
        await scheduling.applying.apply_request(viewer, request, dry_run=False)
    assert there(scheduling) == {"there"}

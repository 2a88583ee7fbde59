"""What an apply does, or would do, and what follows from it, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from hetuflow_core.resources.apply import (
    AffectedInstances,
    AppliedDocument,
    AppliedSchedule,
    ApplyAction,
    ApplyResult,
    FieldChange,
    FireChanges,
    ObjectName,
)
from hetuflow_server.cli.output.layout import Marked

_LONGEST_VALUE: Final = 160
_MOST_NAMED: Final = 20
_QUIET: Final = ""

Line = tuple[str, str]


def plan_of(result: ApplyResult, *, changed_only: bool = False) -> Marked:
    """All documents, or those that differ, and a count."""
    shown = [item for item in result.items if not (changed_only and item.action is ApplyAction.UNCHANGED)]
    lines = [line for item in shown for line in _item(item, dry_run=result.dry_run)]
    return Marked([*lines, *_beside(result), (_QUIET, _total(result)), *_nobodys(result)])


def removals(result: ApplyResult) -> str:
    """Name what goes, as part of a question; empty if nothing does."""
    gone = [item for item in result.items if item.action is ApplyAction.REMOVED]
    return _some([ObjectName(item.kind, item.namespace or "", item.name) for item in gone]) if gone else ""


def _beside(result: ApplyResult) -> Iterator[Line]:
    for one in result.kept:
        yield "changed", f"{_named(one)} is kept: {one.why}"
    if result.left_over:
        names = _some(result.left_over)
        yield "changed", f"of this owner and in none of the files (--prune removes them): {names}"


def _nobodys(result: ApplyResult) -> Iterator[Line]:
    # One line, behind the count: where nobody uses owners it is true of everything.
    if result.unowned:
        yield _QUIET, f"owned by nobody: {_some(result.unowned, capped=result.unowned_capped)}"


def _some(objects: Sequence[ObjectName], *, capped: bool = False) -> str:
    rest = len(objects) - _MOST_NAMED
    more = f" and {'at least ' if capped else ''}{rest} more" if rest > 0 else ""
    return f"{', '.join(map(_named, objects[:_MOST_NAMED]))}{more}"


def _named(one: ObjectName) -> str:
    return f"{one.kind} {one.namespace}/{one.name}"


def _total(result: ApplyResult) -> str:
    counts = {action: sum(item.action is action for item in result.items) for action in ApplyAction}
    total = ", ".join(f"{count} {action.value}" for action, count in counts.items() if count)
    return f"{total or 'nothing to do'}{' (dry run: nothing is changed)' if result.dry_run else ''}"


def _item(item: AppliedDocument, *, dry_run: bool) -> Iterator[Line]:
    name = item.name if item.namespace is None else f"{item.namespace}/{item.name}"
    version = (
        "" if item.version is None or item.action is ApplyAction.REMOVED else f", version {item.version}"
    )
    yield item.action.value, f"{item.kind} {name} {_becomes(item.action, dry_run)}{version}"
    yield from _fields(item.fields, "    ")
    for schedule in item.schedules:
        yield from _schedule(schedule, dry_run=dry_run)
    if item.instances is not None:
        yield from _instances(item.instances, gone=item.action is ApplyAction.REMOVED)
    for affected in item.affected:
        yield _QUIET, f"    schedule {affected.namespace}/{affected.job}/{affected.name} fires otherwise"
        yield from _fires(affected.fires)


def _schedule(schedule: AppliedSchedule, *, dry_run: bool) -> Iterator[Line]:
    if schedule.action is not ApplyAction.UNCHANGED:
        yield schedule.action.value, f"    schedule {schedule.name} {_becomes(schedule.action, dry_run)}"
        yield from _fields(schedule.fields, "        ")
    elif schedule.fires is not None:
        yield _QUIET, f"    schedule {schedule.name} fires otherwise"
    if schedule.fires is not None:
        yield from _fires(schedule.fires)


def _becomes(action: ApplyAction, dry_run: bool) -> str:
    return f"would be {action.value}" if dry_run and action is not ApplyAction.UNCHANGED else action.value


def _fields(fields: Sequence[FieldChange], indent: str) -> Iterator[Line]:
    for field in fields:
        yield "changed", f"{indent}{field.path}: {_value(field.before)} → {_value(field.after)}"


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _fires(fires: FireChanges) -> Iterator[Line]:
    until = f"until {_instant(fires.until)}"
    for count, first, word in (
        (fires.added, fires.first_added, "created"),
        (fires.removed, fires.first_removed, "removed"),
    ):
        if count:
            sign = "+" if word == "created" else "-"
            more = ", …" if count > len(first) else ""
            times = f"{', '.join(map(_instant, first))}{more}"
            yield word, f"        {sign} {count} fire{'s' if count > 1 else ''} {until}: {times}"


def _instances(instances: AffectedInstances, *, gone: bool) -> Iterator[Line]:
    least = "at least " if instances.capped else ""
    waiting = instances.kept - instances.kept_running
    if instances.kept_running:
        yield _QUIET, f"    {least}{instances.kept_running} running go on with the version they have"
    if waiting:
        yield _QUIET, f"    {least}{waiting} waiting keep the version they have"
    if instances.replaced:
        fate = "are stopped" if gone else "are replaced, a few at a time"
        yield "changed", f"    {least}{instances.replaced} of daemons {fate}"
    if instances.withdrawn:
        yield "removed", f"    {instances.withdrawn} already planned for later are taken back"


def _instant(at: datetime) -> str:
    return at.isoformat(timespec="minutes" if not (at.second or at.microsecond) else "seconds")

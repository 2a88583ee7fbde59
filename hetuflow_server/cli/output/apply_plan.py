"""Format the changes of an apply and their effects, line by line."""

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
_PLAIN: Final = ""

Line = tuple[str, str]


def plan_of(result: ApplyResult, *, changed_only: bool = False) -> Marked:
    """Return a line per document, or per changed document, and a total."""
    shown = [item for item in result.items if not (changed_only and item.action is ApplyAction.UNCHANGED)]
    lines = [line for item in shown for line in _item(item, dry_run=result.dry_run)]
    return Marked([*lines, *_kept_objects(result), (_PLAIN, _total(result)), *_unowned_objects(result)])


def removals(result: ApplyResult) -> str:
    """Return the names of removed objects for a question; empty if none are removed."""
    removed = [item for item in result.items if item.action is ApplyAction.REMOVED]
    return (
        _some([ObjectName(item.kind, item.namespace or "", item.name) for item in removed]) if removed else ""
    )


def _kept_objects(result: ApplyResult) -> Iterator[Line]:
    for kept in result.kept:
        yield "changed", f"{_named(kept)} is kept: {kept.why}"
    if result.left_over:
        names = _some(result.left_over)
        yield "changed", f"not in the files, --prune removes them: {names}"


def _unowned_objects(result: ApplyResult) -> Iterator[Line]:
    # One line after the total: without --owner, no object has an owner.
    if result.unowned:
        yield _PLAIN, f"without owner: {_some(result.unowned, capped=result.unowned_capped)}"


def _some(objects: Sequence[ObjectName], *, capped: bool = False) -> str:
    rest = len(objects) - _MOST_NAMED
    more = f" and {'at least ' if capped else ''}{rest} more" if rest > 0 else ""
    return f"{', '.join(map(_named, objects[:_MOST_NAMED]))}{more}"


def _named(object_name: ObjectName) -> str:
    return f"{object_name.kind} {object_name.namespace}/{object_name.name}"


def _total(result: ApplyResult) -> str:
    counts = {action: sum(item.action is action for item in result.items) for action in ApplyAction}
    total = ", ".join(f"{count} {action.value}" for action, count in counts.items() if count)
    return f"{total or 'nothing to do'}{' (dry run: no changes made)' if result.dry_run else ''}"


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
        yield from _instances(item.instances, removed=item.action is ApplyAction.REMOVED)
    for affected in item.affected:
        yield _PLAIN, f"    schedule {affected.namespace}/{affected.job}/{affected.name} has different fires"
        yield from _fires(affected.fires)


def _schedule(schedule: AppliedSchedule, *, dry_run: bool) -> Iterator[Line]:
    if schedule.action is not ApplyAction.UNCHANGED:
        yield schedule.action.value, f"    schedule {schedule.name} {_becomes(schedule.action, dry_run)}"
        yield from _fields(schedule.fields, "        ")
    elif schedule.fires is not None:
        yield _PLAIN, f"    schedule {schedule.name} has different fires"
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


def _instances(instances: AffectedInstances, *, removed: bool) -> Iterator[Line]:
    least = "at least " if instances.capped else ""
    waiting = instances.kept - instances.kept_running
    if instances.kept_running:
        yield _PLAIN, f"    {least}{instances.kept_running} running instances continue with their version"
    if waiting:
        yield _PLAIN, f"    {least}{waiting} waiting instances keep their version"
    if instances.replaced:
        effect = "are stopped" if removed else "are replaced, a few at a time"
        yield "changed", f"    {least}{instances.replaced} daemon instances {effect}"
    if instances.withdrawn:
        yield "removed", f"    {instances.withdrawn} planned instances are withdrawn"


def _instant(at: datetime) -> str:
    return at.isoformat(timespec="minutes" if not (at.second or at.microsecond) else "seconds")

"""Owners: whose files define what, and removing what an owner's files no longer mention.

An owner is a name that whoever applies gives, such as that of a repository. It is no part of a document: the
same file applied by hand changes no owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from hetuflow_core.errors import Conflict, Fault, Invalid
from hetuflow_core.fields import LABEL_KEY
from hetuflow_core.jobfile import Document, Kind, NamespaceSpec
from hetuflow_core.resources.apply import (
    AppliedDocument,
    AppliedSchedule,
    ApplyAction,
    ApplyRequest,
    FieldChange,
    KeptObject,
    ObjectName,
)
from hetuflow_server.apply import owners_store as store
from hetuflow_server.apply.owners_store import OwnedRow
from hetuflow_server.identity import access_store
from hetuflow_server.jobs import store as job_store
from hetuflow_server.jobs.store import JobRow
from hetuflow_server.jobs.versions import from_row
from hetuflow_server.limits.service import delete_limit
from hetuflow_server.postgres.database import Connection
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.schedules import store as schedule_store
from hetuflow_server.schedules.calendars import store as calendar_store
from hetuflow_server.schedules.calendars.actions import delete_calendar
from hetuflow_server.schedules.consequences import Consequences
from hetuflow_server.schedules.edits import EditedJob, ScheduleEdits
from hetuflow_server.secrets.service import delete_secret
from hetuflow_server.webhooks.service import delete_webhook

# What uses others goes before them.
_AFTER_JOBS: Final = {
    Kind.WEBHOOK: delete_webhook,
    Kind.CALENDAR: delete_calendar,
    Kind.SECRET: delete_secret,
    Kind.LIMIT: delete_limit,
}

# A plan names so many that are nobody's: a namespace may have a hundred thousand of them.
_MOST_UNOWNED: Final = 100


def check_owner(asked: ApplyRequest) -> None:
    if asked.owner is None:
        if asked.prune or asked.take_over:
            raise Invalid("Whose files these are has to be said: give an owner.", code="owner.missing")
    elif not LABEL_KEY.fullmatch(asked.owner):
        fault = Fault("owner", "has letters, digits and, inside, also . _ / - (128 characters at most).")
        raise Invalid("The owner has a name that is not allowed.", code="owner.invalid", faults=[fault])


async def left_over(
    connection: Connection, owner: str, specs: Sequence[Document], namespaces: Sequence[str] | None
) -> list[OwnedRow]:
    """Return what belongs to an owner and stands in none of these documents."""
    mentioned = {(spec.kind, getattr(spec, "namespace", ""), spec.name) for spec in specs}
    found = await store.find(connection, owner, namespaces)
    return [row for row in found if (row.kind, row.namespace, row.name) not in mentioned]


async def unowned(
    connection: Connection, specs: Sequence[Document], namespaces: Sequence[str] | None
) -> tuple[list[OwnedRow], bool]:
    """Return what is nobody's in the namespaces that these documents are about, and whether there is more.

    Once the documents are applied and stamped: what is in them is among it only if nobody was named.
    """
    about = {spec.namespace for spec in specs if not isinstance(spec, NamespaceSpec)}
    seen = about if namespaces is None else about & set(namespaces)
    found = await store.find(connection, None, sorted(seen), limit=_MOST_UNOWNED + 1)
    return found[:_MOST_UNOWNED], len(found) > _MOST_UNOWNED


def named(rows: Sequence[OwnedRow]) -> list[ObjectName]:
    return [ObjectName(row.kind.value, row.namespace, row.name) for row in rows]


async def stamp(
    connection: Connection, asked: ApplyRequest, specs: Sequence[Document], items: Sequence[AppliedDocument]
) -> list[AppliedDocument]:
    """Write down whose the documents are; refuse those of others unless they are to be taken over."""
    if asked.owner is None:
        return list(items)
    namespaces = await access_store.namespace_ids(
        connection, sorted({spec.namespace for spec in specs if not isinstance(spec, NamespaceSpec)})
    )
    before: dict[tuple[str, str | None, str], str | None] = {}
    for kind in store.OWNED_KINDS:
        names = [
            (namespaces[item.namespace], item.name)
            for item in items
            if item.kind == kind and item.namespace is not None
        ]
        if not names:
            continue
        owners = await store.of(connection, kind, names)
        others = [name for name in names if owners.get(name) != asked.owner]
        if others:
            await store.stamp(connection, kind, others, asked.owner)
        by_id = {id_: namespace for namespace, id_ in namespaces.items()}
        before |= {(kind.value, by_id[id_], name): owners.get((id_, name)) for id_, name in others}
    if not asked.take_over:
        _refuse_others(asked.owner, before)
    return [_stamped(item, asked.owner, before) for item in items]


def _refuse_others(owner: str, before: Mapping[tuple[str, str | None, str], str | None]) -> None:
    faults = [
        Fault(f"{kind} {namespace}/{name}", f"belongs to {other}.")
        for (kind, namespace, name), other in before.items()
        if other is not None
    ]
    if faults:
        raise Conflict(
            f"{owner} does not own all of this: leave it to its owner, or take it over.",
            code="owner.other",
            faults=faults,
        )


def _stamped(
    item: AppliedDocument, owner: str, before: Mapping[tuple[str, str | None, str], str | None]
) -> AppliedDocument:
    key = (item.kind, item.namespace, item.name)
    if key not in before or item.action is ApplyAction.CREATED:
        return item
    return msgspec.structs.replace(
        item,
        action=ApplyAction.CHANGED,
        changes=[*item.changes, "owner"],
        fields=[*item.fields, FieldChange("owner", before[key], owner)],
    )


@dataclass(slots=True)
class Pruning:
    """What an owner's files no longer mention, on its way out."""

    rows: Sequence[OwnedRow]
    edits: ScheduleEdits

    @property
    def jobs(self) -> list[tuple[str, str]]:
        return [(row.namespace, row.name) for row in self.rows if row.kind is Kind.JOB]

    @property
    def calendar_namespaces(self) -> set[int]:
        return {row.namespace_id for row in self.rows if row.kind is Kind.CALENDAR}

    async def lock_calendars(self, connection: Connection) -> None:
        """Before any job is locked, as everybody does."""
        for namespace_id in sorted(self.calendar_namespaces):
            await calendar_store.lock(connection, namespace_id)

    async def remove(
        self, connection: Connection, audit: AuditContext, noted: Consequences | None
    ) -> tuple[list[AppliedDocument], list[KeptObject]]:
        """Remove what nothing else needs; say what was removed, and what is kept and why."""
        items = await self._remove_jobs(connection, audit, noted)
        kept = []
        for kind, delete in _AFTER_JOBS.items():
            for row in self.rows:
                if row.kind is not kind:
                    continue
                try:
                    await delete(connection, audit, row.namespace_id, row.namespace, row.name)
                except Conflict as needed:
                    kept.append(KeptObject(row.kind.value, row.namespace, row.name, needed.message))
                else:
                    items.append(_removed(row))
        return items, kept

    async def _remove_jobs(
        self, connection: Connection, audit: AuditContext, noted: Consequences | None
    ) -> list[AppliedDocument]:
        rows = [row for row in self.rows if row.kind is Kind.JOB]
        jobs = await job_store.lock_named(connection, [(row.namespace_id, row.name) for row in rows])
        schedules = await schedule_store.lock_of_jobs(connection, [job.id for job in jobs.values()])
        gone = [(_edited(job), schedule) for job in jobs.values() for schedule in schedules.get(job.id, ())]
        await self.edits.remove(connection, gone, noted)
        items = []
        for row in rows:
            job = jobs[row.namespace_id, row.name]
            await job_store.delete_job(connection, job.id)
            audit.note_change("job", job.name, job.namespace, before=job.spec)
            if noted is not None:
                noted.note_job(job.namespace, job.name, job.id)
            its = [AppliedSchedule(one.name, ApplyAction.REMOVED) for one in schedules.get(job.id, ())]
            items.append(msgspec.structs.replace(_removed(row), version=job.version, schedules=its))
        return items


def _edited(job: JobRow) -> EditedJob:
    return EditedJob(from_row(job), job.enabled)


def _removed(row: OwnedRow) -> AppliedDocument:
    return AppliedDocument(row.kind.value, row.namespace, row.name, ApplyAction.REMOVED)

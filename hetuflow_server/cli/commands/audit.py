"""`hetuflow audit list | verify`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from hetuflow_core.audit_chain import Seal
from hetuflow_core.errors import Conflict, Invalid
from hetuflow_core.resources.audit import AuditEntry
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.output.layout import Column, Kind, Table
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take

_TIME = click.DateTime(["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d"])


@click.group("audit")
def audit_group() -> None:
    """List and verify the audit trail: changes and denied requests."""


@audit_group.command("list")
@click.option("--actor", help="Only entries of this user or key.")
@click.option("--action", help="Only this action, such as set_secret.")
@click.option("--target", help="Only entries about this object.")
@click.option("--denied", is_flag=True, help="Only denied requests.")
@click.option("--since", type=_TIME, help="Only entries since this date or time.")
@limit_option
@all_namespaces_option
@server_command
def list_audit(
    invocation: Invocation,
    all_namespaces: bool,
    limit: int,
    since: datetime | None,
    denied: bool,
    actor: str | None,
    action: str | None,
    target: str | None,
) -> None:
    """List audit entries, newest first.

    Example: hetuflow audit list -A --denied --since 2026-07-01
    """
    namespace = None if all_namespaces else invocation.given_namespace
    with invocation.client() as client:
        entries = client.audit(
            namespace=namespace,
            actor=actor,
            action=action,
            target=target,
            outcome="denied" if denied else None,
            since=None if since is None else since.astimezone(),
            page_size=page_size(limit),
        )
        listed = take(invocation, entries, limit)
    invocation.show(listed, human=lambda: [_table(listed)], brief=[str(entry.id) for entry in listed])


@audit_group.command("verify")
@click.option(
    "--expect",
    metavar="SEQ:HASH",
    multiple=True,
    help="A chain hash that an earlier verify printed. Repeatable.",
)
@server_command
def verify_audit(invocation: Invocation, expect: tuple[str, ...]) -> None:
    """Verify that no audit entry was changed or removed.

    Reports the first broken entry. Store the printed SEQ:HASH outside of the database. Passed to --expect
    later, it detects that the whole trail was rewritten.

    Example: hetuflow audit verify --expect 1204:9f2c…
    """
    with invocation.client() as client:
        verdict = client.verify_audit([_seal(text) for text in expect])
    head = f"{verdict.head.seq}:{verdict.head.hash.hex()}"
    shown = {"checked": verdict.checked, "first": verdict.first, "head": head}
    if verdict.broken is not None:
        raise Conflict(
            f"The audit trail is broken: entry {verdict.broken.seq} of the chain {verdict.broken.reason}.",
            code="audit.broken",
        )
    invocation.show(
        shown,
        human=lambda: [f"{verdict.checked} entries verified, up to {head}"],
        brief=[head],
    )


def _seal(text: str) -> Seal:
    seq, _, digest = text.partition(":")
    try:
        return Seal(int(seq), bytes.fromhex(digest))
    except ValueError:
        raise Invalid(f"{text!r} is not a chain hash: give SEQ:HASH as verify prints it.") from None


def _table(entries: Sequence[AuditEntry]) -> Table:
    columns = [
        Column("AT", Kind.TIME),
        Column("ACTOR"),
        Column("FROM"),
        Column("ACTION"),
        Column("OUTCOME"),
        Column("NAMESPACE"),
        Column("TARGET"),
    ]
    rows = [
        [
            entry.at,
            entry.actor or entry.actor_kind,
            entry.source,
            entry.action,
            entry.outcome,
            entry.namespace,
            entry.target,
        ]
        for entry in entries
    ]
    return Table(columns, rows)

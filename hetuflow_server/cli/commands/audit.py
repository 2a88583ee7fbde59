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
    """What people and keys did, and what they were denied."""


@audit_group.command("list")
@click.option("--actor", help="Only what this user or key did.")
@click.option("--action", help="Only this action, such as set_secret.")
@click.option("--target", help="Only what was done to this.")
@click.option("--denied", is_flag=True, help="Only what was refused.")
@click.option("--since", type=_TIME, help="From this day or instant on.")
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
    """List entries, the newest first.

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
        found = take(invocation, entries, limit)
    invocation.show(found, human=lambda: [_table(found)], brief=[str(one.id) for one in found])


@audit_group.command("verify")
@click.option(
    "--expect",
    metavar="SEQ:HASH",
    multiple=True,
    help="A link that an earlier verify has printed and somebody has kept elsewhere.",
)
@server_command
def verify_audit(invocation: Invocation, expect: tuple[str, ...]) -> None:
    """Check that nothing in the audit trail was changed or removed; names the first broken place.

    Keep what it prints somewhere else: given with --expect later, it proves that nobody has written the
    whole trail anew.

    Example: hetuflow audit verify --expect 1204:9f2c…
    """
    with invocation.client() as client:
        verdict = client.verify_audit([_seal(one) for one in expect])
    head = f"{verdict.head.seq}:{verdict.head.hash.hex()}"
    shown = {"checked": verdict.checked, "first": verdict.first, "head": head}
    if verdict.broken is not None:
        raise Conflict(
            f"The audit trail is broken: entry {verdict.broken.seq} of the chain {verdict.broken.reason}.",
            code="audit.broken",
        )
    invocation.show(
        shown,
        human=lambda: [f"{verdict.checked} entries are as they were sealed, up to {head}"],
        brief=[head],
    )


def _seal(text: str) -> Seal:
    seq, _, digest = text.partition(":")
    try:
        return Seal(int(seq), bytes.fromhex(digest))
    except ValueError:
        raise Invalid(f"{text!r} is no link: give SEQ:HASH as verify prints it.") from None


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
        [one.at, one.actor or one.actor_kind, one.source, one.action, one.outcome, one.namespace, one.target]
        for one in entries
    ]
    return Table(columns, rows)

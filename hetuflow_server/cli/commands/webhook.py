"""`hetuflow webhook list | get | set | delete | deliveries | redeliver`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hetuflow_core.resources.webhooks import Webhook, WebhookDelivery
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.layout import Column, Kind, Table
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take


@click.group("webhook")
def webhook_group() -> None:
    """Messages that go out when tasks end, and such that come in."""


@webhook_group.command("list")
@limit_option
@all_namespaces_option
@server_command
def list_webhooks(invocation: Invocation, all_namespaces: bool, limit: int) -> None:
    """List the webhooks of a namespace.

    Example: hetuflow webhook list -n team-a
    """
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        found = take(invocation, client.webhooks(namespace=namespace, page_size=page_size(limit)), limit)
    invocation.show(found, human=lambda: [_table(found)], brief=[one.name for one in found])


@webhook_group.command("get")
@click.argument("name")
@server_command
def get_webhook(invocation: Invocation, name: str) -> None:
    """Show one webhook.

    Example: hetuflow webhook get tell-chat -o json
    """
    with invocation.client() as client:
        _show(invocation, client.webhook(invocation.namespace, name))


@webhook_group.command("set")
@click.argument("name")
@click.option("--secret", required=True, help="Name of the secret that messages are signed with.")
@click.option("--to", "target", metavar="URL", help="Where messages go when tasks end.")
@click.option("--event", "events", multiple=True, help="Only of tasks that end so, such as failed.")
@click.option("--job", "jobs", multiple=True, help="Only of tasks of this job.")
@click.option("--receives", metavar="EVENT", help="Make events of this name of messages that come in.")
@click.option("--disabled", is_flag=True, help="Keep it, and do nothing.")
@server_command
def set_webhook(
    invocation: Invocation,
    name: str,
    secret: str,
    target: str | None,
    events: tuple[str, ...],
    jobs: tuple[str, ...],
    receives: str | None,
    disabled: bool,
) -> None:
    """Make a webhook, or change it to this.

    Example: hetuflow webhook set tell-chat --to https://chat.example.com/7 --secret chat --event failed
    """
    with invocation.client() as client:
        webhook = client.set_webhook(
            invocation.namespace,
            name,
            secret=secret,
            url=target,
            receives=receives,
            events=events or None,
            jobs=jobs or None,
            enabled=not disabled,
        )
    _show(invocation, webhook)


@webhook_group.command("delete")
@click.argument("name")
@YES
@server_command
def delete_webhook(invocation: Invocation, name: str) -> None:
    """Delete a webhook, with what it had still to deliver.

    Example: hetuflow webhook delete tell-chat
    """
    invocation.sure(f"Delete the webhook {invocation.namespace}/{name}?")
    with invocation.client() as client:
        client.delete_webhook(invocation.namespace, name)
    invocation.tell_deleted("Webhook", f"{invocation.namespace}/{name}")


@webhook_group.command("deliveries")
@click.argument("name")
@click.option("--dead", is_flag=True, help="Only what was given up.")
@limit_option
@server_command
def list_deliveries(invocation: Invocation, name: str, dead: bool, limit: int) -> None:
    """List what waits to be delivered and what was given up, with why.

    Example: hetuflow webhook deliveries tell-chat --dead
    """
    with invocation.client() as client:
        deliveries = client.webhook_deliveries(
            invocation.namespace, name, state="dead" if dead else None, page_size=page_size(limit)
        )
        found = take(invocation, deliveries, limit)
    invocation.show(found, human=lambda: [_deliveries(found)], brief=[str(one.id) for one in found])


@webhook_group.command("redeliver")
@click.argument("name")
@click.argument("delivery_id", required=False)
@server_command
def redeliver(invocation: Invocation, name: str, delivery_id: str | None) -> None:
    """Try again what was given up: one delivery, or all of them.

    Example: hetuflow webhook redeliver tell-chat
    """
    with invocation.client() as client:
        count = client.redeliver_webhook(invocation.namespace, name, delivery_id)
    invocation.show({"count": count}, human=lambda: [f"{count} deliveries are tried again."])


def _show(invocation: Invocation, webhook: Webhook) -> None:
    invocation.show(webhook, human=lambda: [_table([webhook])], brief=[webhook.name])


def _table(webhooks: Sequence[Webhook]) -> Table:
    columns = [
        Column("NAMESPACE", Kind.PLACE),
        Column("NAME"),
        Column("ENABLED"),
        Column("URL OR EVENT"),
        Column("EVENTS"),
        Column("JOBS"),
        Column("WAITING", Kind.NUMBER),
        Column("DEAD", Kind.NUMBER),
    ]
    rows = [
        [
            one.namespace,
            one.name,
            "yes" if one.enabled else "no",
            one.url or f"receives {one.receives}",
            ", ".join(one.events) if one.url else "",
            ", ".join(one.jobs),
            one.waiting,
            one.dead,
        ]
        for one in webhooks
    ]
    return Table(columns, rows)


def _deliveries(deliveries: Sequence[WebhookDelivery]) -> Table:
    columns = [
        Column("ID"),
        Column("TASK"),
        Column("EVENT"),
        Column("STATE"),
        Column("ATTEMPTS", Kind.NUMBER),
        Column("NEXT", Kind.TIME),
        Column("LAST"),
    ]
    rows = [
        [str(one.id), str(one.task_id), one.event, one.state, one.attempts, one.next_at, one.last_error]
        for one in deliveries
    ]
    return Table(columns, rows)

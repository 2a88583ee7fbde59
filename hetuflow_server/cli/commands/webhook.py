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
    """List, create, change and delete webhooks: outgoing and incoming messages."""


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
        webhooks = take(invocation, client.webhooks(namespace=namespace, page_size=page_size(limit)), limit)
    invocation.show(webhooks, human=lambda: [_table(webhooks)], brief=[webhook.name for webhook in webhooks])


@webhook_group.command("get")
@click.argument("name")
@server_command
def get_webhook(invocation: Invocation, name: str) -> None:
    """Show a webhook.

    Example: hetuflow webhook get notify-chat -o json
    """
    with invocation.client() as client:
        _show(invocation, client.webhook(invocation.namespace, name))


@webhook_group.command("set")
@click.argument("name")
@click.option("--secret", required=True, help="Name of the secret that signs messages.")
@click.option("--to", "target", metavar="URL", help="Address that receives a message when a task ends.")
@click.option(
    "--event",
    "events",
    multiple=True,
    help="Only tasks that end with this status, such as failed. Repeatable.",
)
@click.option("--job", "jobs", multiple=True, help="Only tasks of this job. Repeatable.")
@click.option("--receives", metavar="EVENT", help="Record an event of this name for each incoming message.")
@click.option("--disabled", is_flag=True, help="Create the webhook disabled.")
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
    """Create or replace a webhook.

    Example: hetuflow webhook set notify-chat --to https://chat.example.com/7 --secret chat --event failed
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
    """Delete a webhook and its pending deliveries.

    Example: hetuflow webhook delete notify-chat
    """
    invocation.confirm(f"Delete the webhook {invocation.namespace}/{name}?")
    with invocation.client() as client:
        client.delete_webhook(invocation.namespace, name)
    invocation.show_deleted("Webhook", f"{invocation.namespace}/{name}")


@webhook_group.command("deliveries")
@click.argument("name")
@click.option("--dead", is_flag=True, help="Only deliveries that have failed permanently.")
@limit_option
@server_command
def list_deliveries(invocation: Invocation, name: str, dead: bool, limit: int) -> None:
    """List pending and failed deliveries with their last error.

    Example: hetuflow webhook deliveries notify-chat --dead
    """
    with invocation.client() as client:
        deliveries = client.webhook_deliveries(
            invocation.namespace, name, state="dead" if dead else None, page_size=page_size(limit)
        )
        listed = take(invocation, deliveries, limit)
    invocation.show(
        listed, human=lambda: [_deliveries(listed)], brief=[str(delivery.id) for delivery in listed]
    )


@webhook_group.command("redeliver")
@click.argument("name")
@click.argument("delivery_id", required=False)
@server_command
def redeliver(invocation: Invocation, name: str, delivery_id: str | None) -> None:
    """Retry failed deliveries: one by its id, or all.

    Example: hetuflow webhook redeliver notify-chat
    """
    with invocation.client() as client:
        count = client.redeliver_webhook(invocation.namespace, name, delivery_id)
    invocation.show({"count": count}, human=lambda: [f"{count} deliveries are sent again."])


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
            webhook.namespace,
            webhook.name,
            "yes" if webhook.enabled else "no",
            webhook.url or f"receives {webhook.receives}",
            ", ".join(webhook.events) if webhook.url else "",
            ", ".join(webhook.jobs),
            webhook.waiting,
            webhook.dead,
        ]
        for webhook in webhooks
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
        Column("LAST ERROR"),
    ]
    rows = [
        [
            str(delivery.id),
            str(delivery.task_id),
            delivery.event,
            delivery.state,
            delivery.attempts,
            delivery.next_at,
            delivery.last_error,
        ]
        for delivery in deliveries
    ]
    return Table(columns, rows)

"""The `edit` commands: open a document in the user's editor and return the changes."""

from __future__ import annotations

from typing import Any

import click
import yaml

from hetuflow_core.errors import HetuflowError, Invalid
from hetuflow_server.cli.output.as_yaml import as_yaml

_HEAD = "# {what}: save to apply, or quit without changes to cancel. Removed keys get their defaults.\n"


def edit_document(what: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the user's changes as a JSON merge patch.

    If the text is not valid YAML, the editor opens again with the error on top, so that no work is lost.
    """
    text = f"{_HEAD.format(what=what)}{as_yaml(document)}\n"
    while True:
        typed = click.edit(text, extension=".yaml")
        if typed is None or typed == text:
            raise HetuflowError("Nothing was changed.")
        try:
            changes = merge_patch(document, _parsed(typed))
        except Invalid as error:
            text = f"# {error.message}\n{typed}"
            continue
        if not changes:
            raise HetuflowError("Nothing was changed.")
        return changes


def merge_patch(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch that turns `before` into `after` (RFC 7396); None removes a key."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := merge_patch(old, value):
                patch[key] = inner
        elif key not in before or value != old:
            patch[key] = value
    return patch


def _parsed(text: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Invalid(" ".join(str(error).split())) from None
    if not isinstance(document, dict):
        raise Invalid("The document must be a mapping of keys to values.")
    return document

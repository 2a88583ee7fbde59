"""Roles of users and keys; each role includes the permissions of the previous ones."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"


class GrantOrigin(StrEnum):
    """The origin of a grant."""

    LOCAL = "local"
    # Assigned by an identity provider at every login.
    PROVIDER = "provider"

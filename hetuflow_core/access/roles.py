"""What a person or program may do; each role may do all that the ones before it may."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"


class GrantOrigin(StrEnum):
    """Who has given a grant."""

    LOCAL = "local"
    # An identity provider; anew at every login.
    PROVIDER = "provider"

"""What operators set about logging in, and about how often one may ask."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from hetuflow_core.runtime.config import Key, Section


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings(Section):
    """How people log in, and how often one may ask. Give all servers the same values."""

    token_lifetime: Annotated[
        timedelta,
        Key(
            "How long the access token of somebody who has logged in is good before it must be refreshed.",
            least=timedelta(minutes=1),
            most=timedelta(days=1),
        ),
    ] = timedelta(minutes=15)
    session_lifetime: Annotated[
        timedelta,
        Key(
            "How long somebody stays logged in without refreshing the token.",
            least=timedelta(minutes=5),
            most=timedelta(days=365),
        ),
    ] = timedelta(days=7)
    attempts_per_user: Annotated[
        int,
        Key("How often a minute logging in as one user may fail.", least=1, most=10_000),
    ] = 10
    attempts_per_source: Annotated[
        int,
        Key("How often a minute logging in from one address may fail.", least=1, most=100_000),
    ] = 60
    requests_per_second: Annotated[
        int,
        Key(
            "How many requests a second one key or user may send to one server, twice that at once; a key "
            "may have its own rate. Agents are not counted.",
            least=1,
            most=1_000_000,
        ),
    ] = 2_000

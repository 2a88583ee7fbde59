"""Fires that no server generated in time: a schedule's `misfire`."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import msgspec

from hetuflow_core.fields import Form, ValueReader
from hetuflow_core.fields.nodes import shortened
from hetuflow_core.fields.value_reader import did_you_mean

DEFAULT_MISFIRE_CAP: Final = 100
_MOST_CAP: Final = 10_000
_ALL: Final = re.compile(r"all\(([0-9]{1,9})\)")


class MisfirePolicy(StrEnum):
    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class Misfire(msgspec.Struct, frozen=True, kw_only=True):
    """The action for fires that no server generated in time: `skip`, `latest` or `all(100)` in a job file."""

    policy: MisfirePolicy = MisfirePolicy.LATEST
    cap: int = DEFAULT_MISFIRE_CAP  # of `all`: the latest N

    def __str__(self) -> str:
        return f"{self.policy.value}({self.cap})" if self.policy is MisfirePolicy.ALL else self.policy.value


def _read(given: ValueReader) -> Misfire | None:
    text = given.text()
    if text is None:
        return None
    if match := _ALL.fullmatch(text.replace(" ", "")):
        cap = int(match[1])
        if not 1 <= cap <= _MOST_CAP:
            given.refuse(f"all(n) keeps between 1 and {_MOST_CAP} fires, not {cap}.")
            return None
        return Misfire(policy=MisfirePolicy.ALL, cap=cap)
    if text not in list(MisfirePolicy):
        hint = did_you_mean(text, MisfirePolicy) or ": use skip, latest, all or all(n)."
        given.refuse(f'"{shortened(text)}" is not a known value{hint}')
        return None
    return Misfire(policy=MisfirePolicy(text))


MISFIRE: Final = Form(
    _read,
    {"type": "string", "pattern": r"^(skip|latest|all|\s*all\s*\(\s*[0-9 ]{1,9}\s*\)\s*)$"},
    str,
    summary=f"`skip`, `latest`, `all` or `all(n)` with n up to {_MOST_CAP:,}",
)

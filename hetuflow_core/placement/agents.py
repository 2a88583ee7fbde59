"""The properties of an agent that placement uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec

from hetuflow_core.errors import Invalid
from hetuflow_core.placement.anti_affinity import RunningJob
from hetuflow_core.placement.requirements import Effect, Resources

_TAINT: Final = re.compile(
    r"(?P<key>[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?)"
    r"(?:=(?P<value>[^:=\s]{0,256}))?"
    r":(?P<effect>[A-Za-z]+)"
)
# Names as used by containers and packages; kernel names differ between systems.
_ARCHITECTURES: Final = {"x86_64": "amd64", "x64": "amd64", "aarch64": "arm64", "armv8l": "arm64"}


class Taint(msgspec.Struct, frozen=True, kw_only=True):
    """Repels work that does not tolerate it."""

    key: str
    value: str = ""
    effect: Effect = Effect.NO_SCHEDULE

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class AgentFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The input of filters and scores about an agent.

    `version` changes with every change of the first group; verdicts are cached by version. The second group
    changes with every claim; only scores with `lasting = False` may use it.
    """

    agent_id: UUID
    version: int
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    pools: frozenset[str] = frozenset()  # empty: the default pool
    capacity: Resources = Resources()
    slots: int = 1
    executors: frozenset[str] = frozenset()
    run_as: frozenset[str] = frozenset()

    in_use: Resources = Resources()
    load: int = 0  # instances running or reserved
    running: tuple[RunningJob, ...] = ()


def automatic_labels(*, os: str, arch: str, hostname: str) -> dict[str, str]:
    """Return the labels that every agent has, from system, machine and node of `platform`."""
    machine = arch.lower()
    return {
        "os": os.lower(),
        "arch": _ARCHITECTURES.get(machine, machine),
        "hostname": hostname.lower(),
    }


def agent_labels(configured: Mapping[str, str], automatic: Mapping[str, str]) -> dict[str, str]:
    """Merge labels: configured labels override automatic ones; empty automatic labels are dropped."""
    return {**{key: value for key, value in automatic.items() if value}, **configured}


def parse_taint(text: str) -> Taint:
    """Parse `key=value:NoSchedule`, or `key:NoSchedule` for a taint without a value."""
    match = _TAINT.fullmatch(text.strip())
    if match is None:
        raise Invalid(f'"{text[:64]}" is not a taint: write one such as spot=yes:NoSchedule.')
    if match["effect"] not in list(Effect):
        raise Invalid(
            f'"{match["effect"][:64]}" is not an effect of a taint: use one of {", ".join(Effect)}.'
        )
    return Taint(key=match["key"], value=match["value"] or "", effect=Effect(match["effect"]))

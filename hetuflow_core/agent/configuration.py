"""Validation of the settings in a configure command.

Separate from the commands, so that clients do not import placement.
"""

from __future__ import annotations

from typing import Final, get_args

from hetuflow_core.agent.commands import MOST_SLOTS, AgentConfiguration, LogLevel
from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.placement import parse_taint

_MOST_LABELS: Final = 64
_LONGEST_LABEL: Final = 256


def check_configuration(configuration: AgentConfiguration) -> None:
    """Raise `Invalid` with all faults; every agent can apply a valid configuration."""
    faults = []
    if configuration == AgentConfiguration():
        faults.append(Fault("", "is empty: give slots, labels, taints, log_level or reset"))
    if configuration.slots is not None and not 1 <= configuration.slots <= MOST_SLOTS:
        faults.append(Fault("slots", f"must be from 1 to {MOST_SLOTS}"))
    if configuration.log_level is not None and configuration.log_level not in get_args(LogLevel):
        faults.append(Fault("log_level", f"must be one of {', '.join(get_args(LogLevel))}"))
    faults += _label_faults(configuration.labels or {})
    for place, taint in enumerate(configuration.taints or ()):
        try:
            parse_taint(taint)
        except Invalid as error:
            faults.append(Fault(f"taints[{place}]", error.message))
    if faults:
        raise Invalid("The agent configuration is invalid.", faults=faults)


def _label_faults(labels: dict[str, str]) -> list[Fault]:
    if len(labels) > _MOST_LABELS:
        return [Fault("labels", f"may be at most {_MOST_LABELS}")]
    return [
        Fault(f"labels.{key[:64]}", f"has a name of 1 and a value of at most {_LONGEST_LABEL} characters")
        for key, value in labels.items()
        if not 1 <= len(key) <= _LONGEST_LABEL or len(value) > _LONGEST_LABEL
    ]

"""How work is run wherever it is described: by a job, and by a node of a flow."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from hetuflow_core.fields.value_reader import SectionReader, ValueReader, each
from hetuflow_core.jobfile.documents import DEFAULT_KILL_GRACE, OnLost
from hetuflow_core.jobfile.leases import LEASE
from hetuflow_core.jobfile.readers.limits import read_scope
from hetuflow_core.jobfile.readers.placement import read_requirements
from hetuflow_core.jobfile.readers.retry import read_retry, refuse_idle_rules
from hetuflow_core.placement import Requirements
from hetuflow_core.retry import RetryPolicy

# What only makes sense where something is run; a flow as a whole has none of them.
NODE_WORK_KEYS: Final = ("retry", "placement", "kill_grace", "on_lost", "lease", "skip_exit_codes")
WORK_KEYS: Final = ("timeout", "limits", *NODE_WORK_KEYS)

_MOMENT: Final = timedelta(milliseconds=1)
_YEAR: Final = timedelta(days=366)
_LONGEST_GRACE: Final = timedelta(days=1)
_HIGHEST_PRIORITY: Final = 1000
_HIGHEST_EXIT_CODE: Final = 255


def read_work(section: SectionReader, unsupported: Mapping[str, str]) -> dict[str, Any]:
    """The values of `WORK_KEYS`, as fields of a job."""
    retry = section.read("retry", lambda given: read_retry(given, unsupported), RetryPolicy())
    placement = section.read("placement", lambda given: read_requirements(given, unsupported), Requirements())
    refuse_idle_rules(section, retry, placement.resources.memory)
    limits: tuple[str, ...] = section.read("limits", _limits, ())
    skip_exit_codes: tuple[int, ...] = section.read("skip_exit_codes", _exit_codes, ())
    return {
        "timeout": section.read("timeout", read_long_duration, None),
        "limits": limits,
        "retry": retry,
        "placement": placement,
        "kill_grace": section.read(
            "kill_grace", lambda given: given.duration(timedelta(0), _LONGEST_GRACE), DEFAULT_KILL_GRACE
        ),
        "on_lost": section.read("on_lost", lambda given: given.choice(OnLost), OnLost.KILL),
        "lease": section.read("lease", LEASE.read, None),
        "skip_exit_codes": skip_exit_codes,
    }


def read_long_duration(given: ValueReader) -> timedelta | None:
    return given.duration(_MOMENT, _YEAR)


def read_priority(given: ValueReader) -> int | None:
    return given.integer(0, _HIGHEST_PRIORITY)


def _limits(given: ValueReader) -> tuple[str, ...]:
    return tuple(sorted(set(each(given, read_scope))))


def _exit_codes(given: ValueReader) -> tuple[int, ...]:
    # 0 has a meaning already: it succeeded.
    return tuple(sorted(set(each(given, lambda item: item.integer(1, _HIGHEST_EXIT_CODE)))))

"""What is run and how: `run`, `retry`, `placement` and the other keys that jobs and nodes have."""

from __future__ import annotations

from typing import Final

from hetuflow_core.fields import shape_of
from hetuflow_core.fields.json_schema import (
    DURATION,
    Schema,
    choice,
    described,
    matching,
    one_or_more,
    several,
    whole,
)
from hetuflow_core.fields.value_reader import LABEL_KEY
from hetuflow_core.jobfile.documents import OnLost
from hetuflow_core.jobfile.limits import SCOPE
from hetuflow_core.jobfile.readers.names import NAME
from hetuflow_core.jobfile.run import Run
from hetuflow_core.placement import Requirements
from hetuflow_core.retry import RetryPolicy

REF: Final = "#/$defs/"
NAME_TEXT: Final = matching(NAME, numbers=True)


def names(*, least: int = 0, most: int | None = None) -> Schema:
    """A list of names, or one of them."""
    return one_or_more(NAME_TEXT, alone=matching(NAME), least=least, most=most)


PRIORITY: Final = described(whole(0, 1000), "Higher goes first among what is due.")
_LABEL: Final = matching(LABEL_KEY, numbers=True)
_PROCESS_KEYS: Final = ("env", "workdir", "user", "artifacts")


def scope() -> Schema:
    """The name of a limit."""
    return SCOPE.json_schema()


def run() -> Schema:
    return described(shape_of(Run).schema(), "What to execute.")


def retry() -> Schema:
    return described(shape_of(RetryPolicy).schema(), "How often it is tried again, and when.")


def placement() -> Schema:
    return described(shape_of(Requirements).schema(), "Which agents may run it.")


def work_keys() -> dict[str, Schema]:
    """The keys of `work_reader.WORK_KEYS`."""
    return {
        "timeout": described(DURATION, "How long one attempt may take."),
        "limits": described(several(scope()), "Names of limits it shares with other jobs."),
        "retry": {"$ref": f"{REF}retry"},
        "placement": {"$ref": f"{REF}placement"},
        "kill_grace": described(DURATION, "Time between SIGTERM and SIGKILL for a task that is ended."),
        "on_lost": described(choice(OnLost), "What an agent without contact does with the work."),
        "lease": described(DURATION, "How long an agent that is not heard of keeps the work."),
        "skip_exit_codes": described(several(whole(1, 255)), "Exit codes that mean: nothing to do."),
    }

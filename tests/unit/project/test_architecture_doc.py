"""What docs/explanation/architecture.md says of states and tables is what the code does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set as AbstractSet
from enum import StrEnum
from pathlib import Path

import pytest

from hetuflow_core.states import (
    INSTANCE_TERMINAL,
    INSTANCE_TRANSITIONS,
    TASK_TERMINAL,
    TASK_TRANSITIONS,
    HeldReason,
    InstanceStatus,
    TaskStatus,
)
from hetuflow_server.schema.tables import metadata

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
IN_SCHEMA, LATER = "yes", "later"

Machine = tuple[str, Mapping[StrEnum, AbstractSet[StrEnum]], AbstractSet[StrEnum], type[StrEnum]]
MACHINES: list[Machine] = [
    ("task", TASK_TRANSITIONS, TASK_TERMINAL, TaskStatus),  # type: ignore[list-item] # a dict's key is invariant
    ("instance", INSTANCE_TRANSITIONS, INSTANCE_TERMINAL, InstanceStatus),  # type: ignore[list-item] # as above
]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine[0])
def test_the_transitions_listed_are_those_of_the_code(machine: Machine) -> None:
    name, transitions, _, _ = machine
    listed = {
        (source, target)
        for source, targets in re.findall(rf"^{name}: (\w+) -> (.+)$", PAGE, re.MULTILINE)
        for target in targets.split(", ")
    }
    coded = {(source.value, target.value) for source, targets in transitions.items() for target in targets}
    assert listed == coded


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine[0])
def test_the_terminal_states_listed_are_those_of_the_code(machine: Machine) -> None:
    name, transitions, terminal, statuses = machine
    (listed,) = re.findall(rf"^{name}: terminal (.+)$", PAGE, re.MULTILINE)
    assert set(listed.split(", ")) == {status.value for status in terminal}
    assert transitions.keys() == set(statuses)
    assert {status for status, targets in transitions.items() if not targets} == terminal


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine[0])
def test_every_state_is_in_the_drawing(machine: Machine) -> None:
    name, _, _, statuses = machine
    (drawing,) = re.findall(r"```text\n(task\n.+?\n\ninstance\n.+?)```", PAGE, re.DOTALL)
    drawn = {part.partition("\n")[0]: set(re.findall(r"\w+", part)) for part in drawing.split("\n\n")}
    assert {status.value for status in statuses} <= drawn[name]


def test_the_reasons_for_holding_are_those_of_the_code() -> None:
    (sentence,) = re.findall(r"`held` has a reason: (.+?)\.", PAGE)
    assert set(re.findall(r"`(\w+)`", sentence)) == {reason.value for reason in HeldReason}


def test_the_tables_listed_are_those_of_the_schema() -> None:
    listed = _tables_listed()
    assert {table for table, state in listed.items() if state == IN_SCHEMA} == set(metadata.tables)
    assert set(listed.values()) <= {IN_SCHEMA, LATER}


def _tables_listed() -> dict[str, str]:
    section = PAGE.partition("## Words and tables\n")[2].partition("\n\nThe view")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if "`" in line]
    return {table: row[3] for row in rows for table in re.findall(r"`(\w+)`", row[2])}

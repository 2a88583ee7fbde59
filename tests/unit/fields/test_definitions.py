"""Every key of every document: described, readable at its default, and listed once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from hetuflow_core.fields import ValueReader, shape_of
from hetuflow_core.fields.nodes import Budget, node_of
from hetuflow_core.fields.struct_fields import StructField
from hetuflow_core.jobfile.documents import SPECS


def structs(start: type[msgspec.Struct], seen: set[type[Any]]) -> Iterator[type[msgspec.Struct]]:
    """The struct and all that it contains."""
    if start not in seen:
        seen.add(start)
        yield start
        for field in shape_of(start).keys.values():
            for nested in field.form.structs:
                yield from structs(nested, seen)


SEEN: set[type[Any]] = set()
FIELDS = {
    f"{struct.__name__}.{name}": field
    for spec in SPECS.values()
    for struct in structs(spec, SEEN)
    for name, field in shape_of(struct).keys.items()
}


def test_all_structs_are_found() -> None:
    assert {"JobSpec.run", "FlowNode.run", "RestartBackoff.delay", "SecretUse.prefix", "Blackout.to"} <= set(
        FIELDS
    )
    assert len(FIELDS) > 150


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_a_key_is_described_by_a_sentence(field: StructField) -> None:
    assert field.key.doc.endswith(".")
    assert field.key.since
    assert field.form.summary


@pytest.mark.parametrize(
    "name", [name for name, field in FIELDS.items() if field.default not in (None, msgspec.NODEFAULT)]
)
def test_a_default_reads_as_it_is_written(name: str) -> None:
    form, default = FIELDS[name].form, FIELDS[name].default
    for written in (form.write(default), form.shortened(default)):
        given = ValueReader(node_of(written, source="", path="", budget=Budget()), "", "", [])
        read = form.read(given)
        if default:
            assert not given.faults
            assert read == default
        else:
            # An empty list or false may mean nothing, or not be allowed; it is never taken for another value.
            assert read in (None, default)


def test_a_required_key_says_what_to_write() -> None:
    # Both ends of a blackout share one message.
    silent = {"DailyBlackout.from", "DailyBlackout.to", "Blackout.from", "Blackout.to"}
    for name, field in FIELDS.items():
        needed = field.default is msgspec.NODEFAULT and field.inline is None
        assert bool(field.key.missing) or not needed or name in silent

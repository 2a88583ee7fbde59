"""What is not said of a command is understood: agent and keeper must take the same for granted."""

from __future__ import annotations

import dataclasses

from msgspec import structs

from hetuflow_agent.keeper.task import Spec
from hetuflow_agent.processes.command import Command


def test_agent_and_keeper_take_the_same_for_granted() -> None:
    said = {field.name: field.default for field in structs.fields(Command) if not field.required}
    understood = {
        field.name: field.default
        for field in dataclasses.fields(Spec)
        if field.default is not dataclasses.MISSING
    }
    assert said == understood
    assert {field.name for field in structs.fields(Command)} == {f.name for f in dataclasses.fields(Spec)}

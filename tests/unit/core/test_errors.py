"""Exceptions as text: the message, then the faults."""

from __future__ import annotations

from hetuflow_core.errors import ConfigInvalid, Fault, Invalid, NotFound


def test_the_text_of_an_error_lists_its_faults() -> None:
    faults = [Fault("run.command", "is missing."), Fault("", "has no name.")]
    assert str(Invalid("The job is invalid.", faults=faults)) == (
        "The job is invalid.\n  run.command: is missing.\n  has no name."
    )
    assert str(ConfigInvalid("No.", faults=[Fault("a", "b")])) == "No.\n  a: b"


def test_the_message_of_an_error_stays_one_sentence() -> None:
    error = Invalid("The job is invalid.", faults=[Fault("run", "is missing.")])
    assert error.message == "The job is invalid."
    assert str(NotFound("There is no job a.")) == "There is no job a."

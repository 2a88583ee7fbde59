"""Type checkers know every operation of both clients, although each is declared once."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hetuflow_core.client import AsyncHetuflow, Hetuflow
from hetuflow_core.client.call_descriptors import Call, Iteration
from hetuflow_core.client.operation_list import Operations

# {the number of a line: what a checker says about it}
Said = Mapping[int, list[str]]

HEAD = """from hetuflow_core.client import AsyncHetuflow, Hetuflow

async def use(blocking: Hetuflow, awaited: AsyncHetuflow) -> None:
"""
NAMES = [name for name, value in vars(Operations).items() if isinstance(value, Call | Iteration)]
# {an expression: its type}
TYPES = {
    'blocking.job("default", "report")': "Job",
    'awaited.job("default", "report")': "Coroutine[Any, Any, Job]",
    'await awaited.job("default", "report")': "Job",
    'blocking.once("key").run("id", params={"a": 1})': "TaskDetail",
    'await awaited.once("key").run("id", params={"a": 1})': "TaskDetail",
    "next(blocking.jobs())": "Job",
    "await anext(awaited.jobs())": "Job",
    'Hetuflow.job(blocking, "default", "report")': "Job",
    'await AsyncHetuflow.job(awaited, "default", "report")': "Job",
}
# {what is wrong: what the message names}
MISTAKES = {
    '{client}.job("default")': "rgument",
    '{client}.job(1, "report")': '"str"',
    '{client}.run("id", prams={{}})': "prams",
    '{client}.jobs(nmespace="default")': "nmespace",
    "{client}.no_such_operation()": "no_such_operation",
}
WRONG = {
    mistake.format(client=client): named
    for mistake, named in MISTAKES.items()
    for client in ("blocking", "awaited")
}
LINES = [
    *(f"reveal_type({client}.{name})" for name in NAMES for client in ("blocking", "awaited")),
    *(f"reveal_type({expression})" for expression in TYPES),
    *(f"_ = {mistake}" for mistake in WRONG),
]


def mypy_says(program: Path) -> Said:
    options = ["--strict", "--config-file=", f"--cache-dir={program.parent / 'cache'}", "--output=json"]
    said = defaultdict(list)
    for line in _output([sys.executable, "-m", "mypy", *options, str(program)]).splitlines():
        found = json.loads(line)
        # As pyright writes it: classes without their modules, and a result of None.
        message = re.sub(r"\b[a-z_]+(\.[a-z_]+)*\.(?=[A-Z])", "", found["message"])
        said[found["line"]].append(re.sub(r'(is "def \(.*\))"$', r'\1 -> None"', message))
    return said


def pyright_says(program: Path) -> Said:
    options = ["--outputjson", "--pythonpath", sys.executable]
    output = _output([sys.executable, "-m", "basedpyright", *options, str(program)])
    said = defaultdict(list)
    for found in json.loads(output)["generalDiagnostics"]:
        if found["severity"] != "warning":
            said[found["range"]["start"]["line"] + 1].append(found["message"])
    return said


def _output(command: list[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.stdout, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("checker", [mypy_says, pyright_says])
def test_type_checkers_know_every_operation(checker: Callable[[Path], Said], tmp_path: Path) -> None:
    """One test for all of it: a run of a checker takes seconds."""
    program = tmp_path / "program.py"
    program.write_text(HEAD + "".join(f"    {line}\n" for line in LINES))
    by_number = checker(program)
    said = {line: by_number.get(number, []) for number, line in enumerate(LINES, HEAD.count("\n") + 1)}
    for name in NAMES:
        blocking, awaited = (
            _revealed(said[f"reveal_type({client}.{name})"]) for client in ("blocking", "awaited")
        )
        _check_operation(name, blocking, awaited)
    for expression, expected in TYPES.items():
        assert _revealed(said[f"reveal_type({expression})"]) == expected
    for mistake, named in WRONG.items():
        assert any(named in message for message in said[f"_ = {mistake}"]), mistake


def _check_operation(name: str, blocking: str, awaited: str) -> None:
    """The parameters are the same for both clients; the results of one are awaited in the other."""
    parameters, _, result = blocking.rpartition(" -> ")
    expected = f"Coroutine[Any, Any, {result}]"
    if isinstance(vars(Operations)[name], Iteration):
        result = result.removeprefix("Generator[").removesuffix(", None, None]")
        expected = f"AsyncGenerator[{result}, None]"
    assert awaited == f"{parameters} -> {expected}"
    assert result != "Any"
    _, *names = inspect.signature(vars(Hetuflow)[name]).parameters
    assert [one for one in names if f"{one}: " not in parameters] == []


def _revealed(messages: list[str]) -> str:
    """Return the type alone: both checkers put it between quotes at the end."""
    found = [re.match(r'(?:Revealed type|Type of .+) is "(.*)"$', message) for message in messages]
    (revealed,) = [match[1] for match in found if match]
    return revealed


def test_operations_are_plain_methods() -> None:
    class Mine(Hetuflow):
        def job(self, *_: Any) -> Any:  # type: ignore[override]  # as a user may do it
            return "mine"

    for client in (Hetuflow, AsyncHetuflow):
        assert {type(vars(client)[name]).__name__ for name in NAMES} == {"function"}
    with Mine("http://127.0.0.1:1") as mine:
        assert mine.job() == "mine"

"""The examples in the README of the postgres package run as they are printed."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import hetuflow_server.postgres

README = Path(str(hetuflow_server.postgres.__file__)).with_name("README.md")
_EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


async def test_the_examples_run_in_their_order(fresh_database_url: str) -> None:
    text = README.read_text()
    names: dict[str, Any] = {"url": fresh_database_url}
    examples = list(_EXAMPLE.finditer(text))
    assert len(examples) >= 10
    for example in examples:
        # Errors name the line of the README.
        source = "\n" * text[: example.start(1)].count("\n") + example[1]
        code = compile(source, README, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result


def test_every_module_is_listed() -> None:
    modules = {path.stem for path in README.parent.glob("*.py")} - {"__init__"}
    text = README.read_text()
    table = text[: text.index("## Open a database")]
    assert {name for name in modules if f"`{name}`" not in table} == set()

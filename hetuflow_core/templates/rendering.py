"""Templates in job files: text with `{{ … }}` expressions over a few names, such as `{{ params.who }}`.

An expression gives text as it is and anything else as JSON (`true`, `3`, `["a"]`). It may look up keys and
items, compare, calculate with numbers, choose (`a if b else c`) and use the filters of
`sandbox.py`; it cannot call functions, loop, or reach a Python object. Two literal braces are
written `{{ '{{' }}`.

Most texts hold no expression and never get further than this module. Jinja lives in `sandbox.py` and
is loaded with the first expression: it belongs to the server's dependencies, and the agent, which shares the
job document but renders nothing, must not need it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache
from types import ModuleType
from typing import Any, Final

from hetuflow_core.errors import Invalid

# Linux takes no argument and no NAME=value longer than 128 KiB; the rest is left for the name.
LONGEST_TEXT: Final = 120 * 1024
NAMES: Final = ("params", "task", "job", "namespace")

_OPENING: Final = "{{"
_STATEMENT: Final = re.compile(r"\{%.*?%\}", re.DOTALL)


def check(template: str, names: Collection[str] = NAMES) -> None:
    """Raise `Invalid` unless this can be rendered with values for `names`."""
    _check_size(template)
    literals = _sandbox().check(template, names) if _OPENING in template else (template,)
    if any(_STATEMENT.search(literal) for literal in literals):
        # Gone through as text it would be a condition that silently never applies.
        raise Invalid(
            "statements ({% … %}) are not part of templates: use {{ … if … else … }}, "
            "or write {{ '{%' }} for the literal characters."
        )


def references(template: str) -> tuple[tuple[tuple[str, ...], bool], ...]:
    """What a checked template looks up: the path, and whether it copes with that not being there."""
    if _OPENING not in template:
        return ()
    return tuple((one.path, one.guarded) for one in _sandbox().references(template))


def has_expression(template: str) -> bool:
    """Whether rendering could change this text."""
    return _OPENING in template


def render(template: str, context: Mapping[str, Any]) -> str:
    """The text with every expression replaced; `context` holds JSON values by name."""
    _check_size(template)
    if _OPENING not in template:
        return template
    text: str = _sandbox().render(template, context, LONGEST_TEXT)
    return text


def render_value(value: Any, context: Mapping[str, Any]) -> Any:
    """A JSON value with every text in it rendered; a text that is one expression becomes what that gives."""
    if isinstance(value, str):
        _check_size(value)
        return _sandbox().evaluate(value, context, LONGEST_TEXT) if _OPENING in value else value
    if isinstance(value, Mapping):
        return {key: render_value(item, context) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [render_value(item, context) for item in value]
    return value


def _check_size(template: str) -> None:
    if len(template.encode(errors="surrogatepass")) > LONGEST_TEXT:
        raise Invalid(
            f"the text is longer than {LONGEST_TEXT // 1024} KiB: pass it to the command in a file."
        )


@cache
def _sandbox() -> ModuleType:
    from hetuflow_core.templates import sandbox as template_sandbox  # noqa: PLC0415 (only servers install Jinja, see above)

    return template_sandbox

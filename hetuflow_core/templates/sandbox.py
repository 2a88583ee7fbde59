"""The Jinja behind `rendering.py`, with everything removed that could run long, grow large or reach out.

Two walls: `_Inspection` lets only known kinds of expression through, before anything is compiled; the
environment then looks up nothing but keys and items of plain data and checks what every operator and filter
makes.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, Undefined, UndefinedError, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hetuflow_core.errors import Invalid
from hetuflow_core.templates.filters import (
    FILTERS,
    LARGEST_INTEGER,
    NEVER,
    TESTS,
    as_json,
    as_text,
    bounded,
    check_length,
    is_number,
)

# Deeper than anyone writes, and shallow enough for every recursive step of Jinja and of Python's compiler.
_DEEPEST: Final = 30
# Compiling takes time; a longer text with this many expressions is a script.
_MOST_PARTS: Final = 1_000
# Jinja turns every line end into \n; this stands for \r on the way through it.
_CARRIAGE_RETURN: Final = f"{NEVER}r"

_ALLOWED: Final = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.Name,
    nodes.Const,
    nodes.List,
    nodes.Tuple,
    nodes.Getattr,
    nodes.Getitem,
    nodes.Slice,
    nodes.CondExpr,
    nodes.Compare,
    nodes.Operand,
    nodes.And,
    nodes.Or,
    nodes.Not,
    nodes.Neg,
    nodes.Pos,
    nodes.Add,
    nodes.Sub,
    nodes.Mul,
    nodes.Div,
    nodes.FloorDiv,
    nodes.Mod,
    nodes.Filter,
    nodes.Keyword,
    nodes.Test,
)
_REFUSED: Final[dict[type[nodes.Node], str]] = {
    nodes.Call: "functions and methods cannot be called in a template: use a filter",
    nodes.Concat: "~ is not part of templates: write the expressions next to each other, {{ a }}{{ b }}",
    nodes.Pow: "** is not part of templates: calculate it before",
    nodes.Dict: "mappings cannot be written in a template: pass it as a parameter",
}


# What is said about something that may not be there; whatever else is done with it needs it.
_GUARDS: Final = frozenset({"d", "default", "defined", "undefined", "none"})


@dataclass(frozen=True, slots=True)
class Reference:
    """A name and the keys looked up below it: `nodes.x.output`."""

    path: tuple[str, ...]
    # It may be undefined there: it has a default, or is asked whether it is defined.
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class _Compiled:
    template: Template
    # Of a text that is one expression and nothing else: gives its value as JSON.
    expression: Template | None
    names: frozenset[str]
    literals: tuple[str, ...]
    references: tuple[Reference, ...]


def check(text: str, names: Collection[str]) -> tuple[str, ...]:
    """Raise `Invalid` unless it can be compiled and uses known names only; the text between expressions."""
    for name in sorted(_compiled(text).names.difference(names)):
        close = get_close_matches(name, names, 1)
        hint = f'did you mean "{close[0]}"?' if close else f"known names are {', '.join(names)}."
        raise Invalid(f'the template uses the unknown name "{name}": {hint}')
    return _compiled(text).literals


def references(text: str) -> tuple[Reference, ...]:
    """Return what the expressions of a text look up."""
    return _compiled(text).references


def render(text: str, context: Mapping[str, Any], longest: int) -> str:
    return _generated(text, _compiled(text).template, context, longest)


def evaluate(text: str, context: Mapping[str, Any], longest: int) -> Any:
    """The value of a text that is one expression, of whatever type; any other text as `render` gives it."""
    expression = _compiled(text).expression
    if expression is None:
        return render(text, context, longest)
    return json.loads(_generated(text, expression, context, longest))


def _generated(text: str, template: Template, context: Mapping[str, Any], longest: int) -> str:
    pieces: list[str] = []
    size = 0
    try:
        for piece in template.generate(context):
            size += len(piece.encode())
            if size > longest:
                raise Invalid(
                    f"{_shown(text)} renders to more than {longest // 1024} KiB: pass less, or pass a file."
                )
            pieces.append(piece)
    except (ArithmeticError, LookupError, RecursionError, TypeError, UndefinedError, ValueError) as error:
        raise Invalid(f"{_shown(text)} cannot be rendered: {error}.") from error
    return "".join(pieces).replace(_CARRIAGE_RETURN, "\r")


@lru_cache(maxsize=256)
def _compiled(text: str) -> _Compiled:
    if NEVER in text:
        raise Invalid("a template cannot hold a NUL character: remove it.")
    try:
        tree = _environment.parse(text.replace("\r", _CARRIAGE_RETURN))
    except TemplateSyntaxError as error:
        line = f" on its line {error.lineno}" if "\n" in text else ""
        problem = (error.message or "it cannot be read").rstrip(".")
        raise Invalid(
            f"the template {_shown(text)} is wrong{line}: {problem}; "
            "correct it, or write {{ '{{' }} for two literal braces."
        ) from None
    except (RecursionError, ValueError):
        raise Invalid(f"the template {_shown(text)} cannot be read: write it simpler.") from None
    inspection = _Inspection()
    inspection.visit(tree, depth=0)
    single = _is_expression(tree)
    return _Compiled(
        _environment.from_string(tree),
        _value_environment.from_string(_value_environment.parse(text.strip())) if single else None,
        frozenset(inspection.names),
        tuple(inspection.literals),
        tuple(_references(tree, guarded=False)),
    )


def _is_expression(tree: nodes.Template) -> bool:
    (body,) = tree.body if len(tree.body) == 1 else (None,)
    if not isinstance(body, nodes.Output):
        return False
    meant = [
        node for node in body.nodes if not (isinstance(node, nodes.TemplateData) and not node.data.strip())
    ]
    return len(meant) == 1 and not isinstance(meant[0], nodes.TemplateData)


def _references(node: nodes.Node, *, guarded: bool) -> Iterator[Reference]:
    path = _path(node)
    if path is not None:
        yield Reference(path, guarded)
        return
    guards = isinstance(node, (nodes.Filter, nodes.Test)) and node.name in _GUARDS
    for child in node.iter_child_nodes():
        yield from _references(child, guarded=guards)


def _path(node: nodes.Node) -> tuple[str, ...] | None:
    """Return the keys of a chain of lookups, as far as they are written down; None for anything else."""
    if isinstance(node, nodes.Name):
        return (node.name,)
    if isinstance(node, nodes.Getattr):
        above = _path(node.node)
        return None if above is None else (*above, node.attr)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        above = _path(node.node)
        return None if above is None else (*above, str(node.arg.value))
    return None


class _Inspection:
    """Walks an expression tree, refuses what has no place in a template and notes what is in use."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.literals: list[str] = []
        self._parts = 0

    def visit(self, node: nodes.Node, depth: int) -> None:
        self._parts += 1
        if depth > _DEEPEST or self._parts > _MOST_PARTS:
            raise Invalid("the template is too complex: write it simpler, or use a script.")
        if not isinstance(node, _ALLOWED):
            kind = type(node)
            raise Invalid(f"{_REFUSED.get(kind, f'{kind.__name__} is not part of templates: leave it out')}.")
        self._check(node)
        for child in node.iter_child_nodes():
            self.visit(child, depth + 1)

    def _check(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.TemplateData):
            self.literals.append(node.data)
        elif isinstance(node, nodes.Name):
            if node.name == "self":  # Jinja puts an object of its own there
                raise Invalid('the name "self" is not part of templates: leave it out.')
            self.names.add(node.name)
        elif isinstance(node, nodes.Const):
            _check_constant(node.value)
        elif isinstance(node, nodes.Filter):
            _known("filter", node.name, FILTERS)
        elif isinstance(node, nodes.Test):
            _known("test", node.name, TESTS)


def _check_constant(value: Any) -> None:
    if is_number(value) and not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
        raise Invalid("the template holds a number that is too large: write a smaller one.")


def _known(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        close = get_close_matches(name, known, 1)
        hint = f'did you mean "{close[0]}"?' if close else f"there are {', '.join(sorted(known))}."
        raise Invalid(f'the template uses the unknown {what} "{name}": {hint}')


def _shown(text: str) -> str:
    return f'"{text if len(text) <= 80 else text[:80] + "…"}"'  # noqa: PLR2004 (what fits on a line)


class _Missing(StrictUndefined):
    """A name or key that is not there; any use of it but `default` and `is defined` is an error."""


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`params.items` is the parameter of that name, never a method."""
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Undefined):
            str(obj)  # raises, naming what is missing
        usable = (isinstance(obj, Mapping) and isinstance(argument, str)) or (
            isinstance(obj, (str, list, tuple)) and isinstance(argument, int)
        )
        if usable and (argument in obj if isinstance(obj, Mapping) else -len(obj) <= argument < len(obj)):
            return obj[argument]
        return self.undefined(f"{json.dumps(argument, default=str)} is not defined")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ARG002 (Jinja's)
        for operand in (left, right):
            if isinstance(operand, Undefined):
                str(operand)  # raises, naming what is missing
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            check_length(len(left) + len(right))
            return left + right
        if not (is_number(left) and is_number(right)):
            raise TypeError(f"{operator} works on numbers" + (" or on two texts" if operator == "+" else ""))
        return bounded(_ARITHMETIC[operator](left, right))


_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}


def _value_as_json(value: Any) -> str:
    as_text(value)  # refuses what no text may hold either
    return as_json(value)


def _make_environment(finalize: Callable[[Any], str]) -> _Sandbox:
    environment = _Sandbox(
        block_start_string=f"{NEVER}%",
        block_end_string=f"%{NEVER}",
        comment_start_string=f"{NEVER}#",
        comment_end_string=f"#{NEVER}",
        keep_trailing_newline=True,
        optimized=False,
        undefined=_Missing,
        finalize=finalize,
        autoescape=False,
        cache_size=0,
    )
    environment.globals.clear()
    environment.filters = dict(FILTERS)
    environment.tests = dict(TESTS)
    return environment


_environment: Final = _make_environment(as_text)
_value_environment: Final = _make_environment(_value_as_json)

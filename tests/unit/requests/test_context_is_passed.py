"""Changes of requests are audited: handlers, services and transactions pass the request context on."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from litestar.routes import HTTPRoute

import hetuflow_server
from hetuflow_server.requests.context import RequestContext
from tests.support.http.routes import usual_application

ROOT = Path(hetuflow_server.__file__).parent
TAKING_CONTEXT = {
    ("database", "transaction"),
    ("database", "reading"),
    ("database", "single"),
    ("hints", "give"),
}
# Transactions without a context in modules that also serve requests.
WITHOUT_CONTEXT = {
    # Loops.
    "identity/logins/service.py purge",
    # Counting an attempt to log in is not a change to audit.
    "identity/logins/service.py _count_attempt",
    # Recording a denial is an entry itself.
    "audit/service.py note",
    # Calls of agents.
    "artifacts/service.py store",
    "artifacts/service.py fetch",
    # Reading for GET requests alone.
    "artifacts/service.py _bytes",
    "audit/service.py chain",
    "events/service.py list_events",
    "identity/keys/agent_tokens.py list_tokens",
    "identity/keys/agent_tokens.py token",
    "identity/users/service.py list_users",
    "tasks/stream/service.py _news",
    "tasks/stream/service.py _opening",
    "tasks/stream/service.py _renewed",
}


def test_every_handler_that_may_change_something_takes_the_context() -> None:
    """The linter refuses arguments that are taken and not used."""
    forgetful = [
        f"{sorted(handler.http_methods)} {route.path}"
        for route in usual_application().routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        if not {"GET", "OPTIONS"} & set(handler.http_methods)
        and "context" not in inspect.signature(handler.fn).parameters
    ]
    assert not forgetful


def test_what_serves_requests_passes_their_context() -> None:
    forgetful = set()
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text()
        if RequestContext.__name__ not in source:
            continue
        name = str(path.relative_to(ROOT))
        forgetful |= {f"{name} {function}" for function in _forgetful(ast.parse(source))}
    assert forgetful == WITHOUT_CONTEXT


def test_the_check_sees_a_forgotten_context() -> None:
    forgetful = """
class Service:
    async def change(self, context: RequestContext) -> None:
        async with self._database.transaction() as connection:
            pass
        self._hints.give([topic])
"""
    assert list(_forgetful(ast.parse(forgetful))) == ["change", "change"]
    passed = forgetful.replace("transaction()", "transaction(context)").replace(
        "[topic])", "[topic], context)"
    )
    assert not list(_forgetful(ast.parse(passed)))


def _forgetful(tree: ast.AST, function: str = "") -> Iterator[str]:
    """Yield the innermost function around each transaction or hint that is given no context."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _forgetful(node, node.name)
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = ast.unparse(node.func.value).rpartition(".")[2].lstrip("_")
            passes = any(isinstance(one, ast.Name) and one.id in {"context", "self"} for one in node.args)
            if (receiver, node.func.attr) in TAKING_CONTEXT and not passes:
                yield function
        yield from _forgetful(node, function)

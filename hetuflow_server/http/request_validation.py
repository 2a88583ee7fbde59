"""What JSON and URLs allow and nothing behind this door can keep or would read as it was meant.

PostgreSQL stores no NUL and no half of a character, of a key given twice one value would be lost without a
word, and JSON may be nested deeper than any reader goes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Any

from litestar import Litestar, Request
from litestar.exceptions import ClientException
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from hetuflow_core.errors import Fault, Invalid, TooLarge
from hetuflow_server.http.argument_models import models_with
from hetuflow_server.http.authorization import RouteAccess, declared

_NUL = "\x00"
_QUERIES = "queries"
_MOST_HEADER_BYTES = 65_536


async def refuse_unreadable(request: Request[Any, Any, Any]) -> None:
    """Look at a request before its handler does."""
    if sum(len(name) + len(value) for name, value in request.scope["headers"]) > _MOST_HEADER_BYTES:
        raise TooLarge(
            f"The headers of a request have {_MOST_HEADER_BYTES:,} bytes at most.", code="request.headers"
        )
    if _NUL in request.url.path or "%00" in request.scope["query_string"].decode("latin-1"):
        raise ClientException("An address holds no NUL character: remove the %00.")
    refuse_unknown_queries(request)
    if request.content_type[0] == "application/json" and (body := await request.body()):
        refuse_bad_json(body)


def declare_queries(app: Litestar) -> None:
    """Note with each route which words of a query it knows."""
    for handler, names in _expected_queries(app):
        handler.opt[_QUERIES] = names | handler.opt.get(_QUERIES, frozenset())


def _expected_queries(app: Litestar) -> Iterator[tuple[HTTPRouteHandler, frozenset[str]]]:
    models = models_with(app, "expected_query_params")
    if models is None:
        yield from _documented_queries(app)
        return
    for handler, model in models:
        yield handler, frozenset(one.field_alias for one in model.expected_query_params)


def _documented_queries(app: Litestar) -> Iterator[tuple[HTTPRouteHandler, frozenset[str]]]:
    """Yield each handler with the names in the OpenAPI document, which takes long to make."""
    paths = app.openapi_schema.paths or {}
    for route in app.routes:
        if isinstance(route, HTTPRoute) and route.path_format in paths:
            for handler in route.route_handlers:
                for method in handler.http_methods:
                    operation = getattr(paths[route.path_format], method.lower(), None)
                    if operation is not None:
                        parameters = operation.parameters or ()
                        yield handler, frozenset(one.name for one in parameters if one.param_in == "query")


def refuse_unknown_queries(request: Request[Any, Any, Any]) -> None:
    """A filter that is misspelt would otherwise be answered with everything."""
    opt = request.route_handler.opt
    known = opt.get(_QUERIES)
    # Identity providers and senders of messages add words of their own.
    if known is None or not request.scope["query_string"] or declared(opt) is RouteAccess.OPEN:
        return
    unknown = sorted({name for name, _ in request.query_params.multi_items()} - known)
    if unknown:
        faults = [Fault(name[:64], f"is not known here{_hint(name, known)}") for name in unknown]
        raise Invalid(
            "The address asks for what this call does not know.", code="query.invalid", faults=faults
        )


def _hint(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, sorted(known), 1)
    if close:
        return f": did you mean {close[0]}?"
    return f": it knows {', '.join(sorted(known))}." if known else ": it takes none."


def refuse_bad_json(body: bytes) -> None:
    try:
        value = json.loads(body.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise _malformed("is nested too deeply") from error
    except ValueError as error:
        raise _malformed(f"is no JSON: {error}") from error
    # Whatever could not be written as it is must have been escaped.
    if b"\\u" in body and (fault := _unkeepable(value)) is not None:
        raise Invalid("The body holds text that cannot be kept.", faults=[fault])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise _malformed(f'has the key "{twice[:64]}" twice in one object')
    return made


def _refuse_constant(name: str) -> Any:
    raise _malformed(f"holds {name}, which is no JSON")


def _unkeepable(value: Any, path: str = "") -> Fault | None:
    """Return the first text that PostgreSQL would not take."""
    match value:
        case str():
            if _NUL in value:
                return Fault(path, "holds a NUL character: remove it")
            if any("\ud800" <= character <= "\udfff" for character in value):
                return Fault(path, "holds half of a character (a lone surrogate): remove it")
        case dict():
            for key, inner in value.items():
                if fault := _unkeepable(key, path) or _unkeepable(inner, f"{path}.{key}" if path else key):
                    return fault
        case list():
            for place, inner in enumerate(value):
                if fault := _unkeepable(inner, f"{path}[{place}]"):
                    return fault
    return None


def _malformed(what: str) -> ClientException:
    return ClientException(f"The body {what}.")

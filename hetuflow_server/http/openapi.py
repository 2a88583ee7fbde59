"""The OpenAPI document: what it declares for every call, what it adds to that, and who may read it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, get_args, get_origin

import msgspec
from litestar import Litestar, Request, Response, Router
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.routes import HTTPRoute

from hetuflow_core import __version__
from hetuflow_server.http import examples
from hetuflow_server.http.authorization import RouteAccess, needs
from hetuflow_server.http.problems import PROBLEM_JSON, Problem, code_of

OPENAPI_PATH = "/api/v1/openapi.json"
_DOCUMENT: Final = "openapi_document"
_SCHEMAS: Final = "#/components/schemas/"
_GENERIC: Final = re.compile(r"(\w+)\[(\w+)\]")
_ABOUT: Final = (
    "Everything the command and the Python client do. Bodies and answers are JSON, times are RFC 3339 with "
    "an offset, ids are UUIDs. Errors are `application/problem+json` with a stable `code`. Lists are "
    "`{items, next_cursor, total, total_capped}`."
)
# In words, what the calls of a tag are about.
TAGS: Final[Mapping[str, str]] = {
    "agents": "Hosts that run tasks, and what they are told.",
    "audit": "What was done and what was refused, by whom.",
    "auth": "Logging in and out, and who one is.",
    "bulk": "The same done to many things at once, chosen by a filter.",
    "calendars": "Days that schedules leave out or keep to.",
    "daemons": "Schedules that keep instances of a job running.",
    "events": "Named facts that start what waits for them.",
    "flows": "Runs of jobs whose body is a graph.",
    "health": "For load balancers; they need no credential.",
    "jobs": "What to run.",
    "keys": "API keys of people and programs, and tokens of agents.",
    "limits": "How much may run at once under a name.",
    "namespaces": "Tenants: their weight, and the server that looks after each.",
    "schedules": "When jobs run, and what comes of it.",
    "secrets": "Values that tasks are given and nobody can read.",
    "servers": "The servers, and which of them leads.",
    "system": "What this is, and what is where right now.",
    "task instances": "Attempts of tasks, their logs and the files they left behind.",
    "tasks": "Planned executions, what became of them, and why they wait.",
    "users": "People, and the roles they hold.",
    "webhooks": "Messages that go out when tasks end, or come in and become events.",
}


def problems(*statuses: HTTPStatus) -> dict[int, ResponseSpec]:
    """Return what a route declares for these statuses, and for those every route may answer with."""
    everywhere = (
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.SERVICE_UNAVAILABLE,
    )
    return {
        int(status): ResponseSpec(
            Problem,
            description=status.phrase,
            media_type=PROBLEM_JSON,
            generate_examples=False,
        )
        for status in (*everywhere, *statuses)
    }


class _Document(JsonRenderPlugin):
    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:  # noqa: ARG002 - made once for all
        return document_of(request.app)


def openapi_config() -> OpenAPIConfig:
    """Serve the document to whoever has a credential, and nothing that loads anything from elsewhere."""
    return OpenAPIConfig(
        "Hetuflow",
        __version__,
        description=_ABOUT,
        use_handler_docstrings=True,
        render_plugins=[_Document(path=OPENAPI_PATH.rpartition("/")[2])],
        openapi_router=Router(
            OPENAPI_PATH.rpartition("/")[0],
            route_handlers=[],
            opt=needs(RouteAccess.KNOWN),
            include_in_schema=False,
        ),
        components=Components(
            security_schemes={"key": SecurityScheme("http", scheme="bearer", description="An API key.")},
        ),
        security=[{"key": []}],
    )


def document_of(app: Litestar) -> bytes:
    """Return the document of an application, made when it is first asked for."""
    made: bytes | None = getattr(app.state, _DOCUMENT, None)
    if made is None:
        made = msgspec.json.encode(completed(app))
        setattr(app.state, _DOCUMENT, made)
    return made


def completed(app: Litestar) -> dict[str, Any]:
    """Return what the framework knows of the routes, with examples, words and tags."""
    document: dict[str, Any] = _with_plain_names(app.openapi_schema.to_schema())
    answers = dict(_answers(app))
    used = set()
    for operation in _operations(document):
        id_ = operation["operationId"]
        used.update(operation.get("tags", ()))
        operation["summary"] = id_.replace("_", " ").capitalize()
        if id_ in examples.REQUESTS:
            body = operation.setdefault(
                "requestBody", {"required": True, "content": {"application/json": {}}}
            )
            _add(body["content"], examples.REQUESTS[id_])
        for status, response in operation["responses"].items():
            if int(status) >= HTTPStatus.BAD_REQUEST:
                _add(response.get("content", {}), _problem(HTTPStatus(int(status))))
            elif id_ in answers:
                _add(response.get("content", {}), examples.answer(answers[id_]))
    document["tags"] = [{"name": tag, "description": TAGS.get(tag, "")} for tag in sorted(used)]
    return document


def _with_plain_names(document: dict[str, Any]) -> dict[str, Any]:
    """Call the schema of `Page[Job]` `JobPage`; the framework names it by the modules of both types."""
    schemas = document["components"]["schemas"]
    names = {name: _GENERIC.sub(r"\2\1", schema.get("title", name)) for name, schema in schemas.items()}
    renamed = {names[name]: {**schema, "title": names[name]} for name, schema in schemas.items()}
    document["components"]["schemas"] = dict(sorted(renamed.items()))
    references = {f"{_SCHEMAS}{name}": f"{_SCHEMAS}{plain}" for name, plain in names.items()}
    for node in _nodes(document):
        if "$ref" in node:
            node["$ref"] = references[node["$ref"]]
    return document


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a document."""
    if isinstance(value, dict):
        yield value
        value = value.values()
    elif not isinstance(value, list):
        return
    for part in value:
        yield from _nodes(part)


def _operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for item in document["paths"].values():
        yield from (one for one in item.values() if isinstance(one, dict) and "operationId" in one)


def _add(content: Mapping[str, dict[str, Any]], value: Any) -> None:
    for media_type in content.values():
        media_type["examples"] = {"example": {"value": value}}


def _answers(app: Litestar) -> Iterator[tuple[str, Any]]:
    """Yield (operation, the type it answers with) of those that answer with one of ours."""
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                expected = _answered(handler)
                if handler.operation_id and expected is not None:
                    yield str(handler.operation_id), expected


def _answered(handler: HTTPRouteHandler) -> Any:
    annotation = handler.parsed_fn_signature.return_type.annotation
    if get_origin(annotation) is Response:
        (annotation,) = get_args(annotation)
    plain = get_origin(annotation) or annotation
    return annotation if isinstance(plain, type) and issubclass(plain, msgspec.Struct) else None


def _problem(status: HTTPStatus) -> dict[str, Any]:
    code = code_of(status)
    problem = Problem(
        type=f"urn:hetuflow:problem:{code}",
        title=status.phrase,
        status=status,
        detail="One sentence: what is wrong, and what to do.",
        code=code,
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
    )
    made: dict[str, Any] = msgspec.to_builtins(problem)
    return made

"""The OpenAPI document: what it declares for every call, and who may read it."""

from __future__ import annotations

from http import HTTPStatus

from litestar import Router
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from hetuflow_core import __version__
from hetuflow_server.http.guarding import Door, needs
from hetuflow_server.http.problems import PROBLEM_JSON, Problem

OPENAPI_PATH = "/api/v1/openapi.json"


def problems(*statuses: HTTPStatus) -> dict[int, ResponseSpec]:
    """Return what a route declares for these statuses, and for those every route may answer with."""
    everywhere = (
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
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


def openapi_config() -> OpenAPIConfig:
    """Serve the document to whoever has a credential, and nothing that loads anything from elsewhere."""
    return OpenAPIConfig(
        "Hetuflow",
        __version__,
        use_handler_docstrings=True,
        render_plugins=[JsonRenderPlugin(path=OPENAPI_PATH.rpartition("/")[2])],
        openapi_router=Router(
            OPENAPI_PATH.rpartition("/")[0], route_handlers=[], opt=needs(Door.KNOWN), include_in_schema=False
        ),
        components=Components(
            security_schemes={"key": SecurityScheme("http", scheme="bearer", description="An API key.")},
        ),
        security=[{"key": []}],
    )

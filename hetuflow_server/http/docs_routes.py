"""`/docs`: the OpenAPI document for people, with everything it needs from this server.

A browser that is sent to a page brings no bearer token, so it asks for a name and a password: any name, and
an API key. That is taken here and nowhere else: a browser adds it to requests other sites make, and only what
changes nothing may be asked for that way.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Annotated, Any, Final

from litestar import Request, Response, Router, get
from litestar.params import PathParameter

from hetuflow_core.errors import NotFound
from hetuflow_server.http.authorization import RouteAccess, needs, with_basic
from hetuflow_server.http.openapi import document_of

_KINDS: Final = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "viewer.js": "text/javascript; charset=utf-8",
}
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, max-age=3600",
}


@get("/docs")
async def docs() -> Response[bytes]:
    return Response(_file("index.html"), media_type="text/html; charset=utf-8", headers=_HEADERS)


@get("/docs/{asset:str}")
async def docs_asset(
    request: Request[Any, Any, Any], asset: Annotated[str, PathParameter()]
) -> Response[bytes]:
    if asset == "openapi.json":
        return Response(document_of(request.app), media_type="application/json", headers=_HEADERS)
    if asset not in _KINDS:
        raise NotFound("There is no such file.", code="docs.not_found")
    return Response(_file(asset), media_type=_KINDS[asset], headers=_HEADERS)


@cache
def _file(name: str) -> bytes:
    return (resources.files("hetuflow_server.http") / "viewer" / name).read_bytes()


docs_router = Router(
    "/",
    route_handlers=[docs, docs_asset],
    opt={**needs(RouteAccess.KNOWN), **with_basic()},
    include_in_schema=False,
)

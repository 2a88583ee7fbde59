"""The roles of the REST page are the lowest ones that hold what each route declares."""

from __future__ import annotations

import re
from pathlib import Path

from hetuflow_core.access.permissions import ROLE_PERMISSIONS, Permission
from hetuflow_core.access.roles import Role
from hetuflow_server.http.authorization import RouteAccess
from tests.support.http.routes import Route, all_routes

PAGE = (Path(__file__).parents[3] / "docs/reference/api.md").read_text(encoding="utf-8")
# To plan they need less than to do it, and the page says so.
MORE_TO_DO_IT = {
    "POST /api/v1/apply": Permission.JOBS_WRITE,
    "POST /api/v1/schedules/{schedule_id}/backfill": Permission.SCHEDULES_OPERATE,
}
# Who may is not a matter of roles alone.
OTHERWISE = {
    "POST /api/v1/flow-runs/{run_id}/nodes/{node}/approve": "whom the node names, or operator",
    "POST /api/v1/flow-runs/{run_id}/nodes/{node}/reject": "whom the node names, or operator",
    "POST /api/v1/hooks/{namespace}/{name}": "a signature",
}


def test_the_roles_of_the_page_are_those_of_the_code() -> None:
    listed = dict(re.findall(r"^\| `([A-Z]+ [^`]+)` \| ([^|]+) \|", PAGE, re.MULTILINE))
    assert {str(route): _role(route) for route in all_routes() if route.operation_id} == listed


def _role(route: Route) -> str:
    if str(route) in OTHERWISE:
        return OTHERWISE[str(route)]
    needed = MORE_TO_DO_IT.get(str(route), route.access)
    if isinstance(needed, Permission):
        return next(role.value for role in Role if needed in ROLE_PERMISSIONS[role])
    return "none" if needed is RouteAccess.OPEN else "any"

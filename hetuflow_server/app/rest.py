"""The REST API, put together."""

from __future__ import annotations

from collections.abc import Sequence

from litestar import Litestar
from litestar.exceptions import HTTPException

from hetuflow_server.api.agents import agents_router
from hetuflow_server.api.api_keys import api_keys_router
from hetuflow_server.api.artifacts import artifacts_router
from hetuflow_server.api.audit import audit_router
from hetuflow_server.api.auth import auth_router
from hetuflow_server.api.backfills import backfills_router
from hetuflow_server.api.bulk import bulk_router
from hetuflow_server.api.calendars import calendars_router
from hetuflow_server.api.daemons import daemons_router
from hetuflow_server.api.docs import docs_router
from hetuflow_server.api.events import events_router
from hetuflow_server.api.explanations import explanations_router
from hetuflow_server.api.flow_runs import flow_runs_router
from hetuflow_server.api.health import healthz, readyz
from hetuflow_server.api.jobs import jobs_router
from hetuflow_server.api.limits import limits_router
from hetuflow_server.api.namespaces import namespaces_router
from hetuflow_server.api.oidc import oidc_router
from hetuflow_server.api.schedule_previews import schedule_previews_router
from hetuflow_server.api.schedules import schedules_router
from hetuflow_server.api.secrets import secrets_router
from hetuflow_server.api.servers import servers_router
from hetuflow_server.api.system import system_router
from hetuflow_server.api.task_instances import task_instances_router
from hetuflow_server.api.task_stream import task_stream_router
from hetuflow_server.api.tasks import tasks_router
from hetuflow_server.api.users import users_router
from hetuflow_server.api.webhooks import webhooks_router
from hetuflow_server.app.services import Services
from hetuflow_server.http.compression import compressing
from hetuflow_server.http.cross_origin import cross_origin
from hetuflow_server.http.depending import resolve_one_by_one
from hetuflow_server.http.guarding import guard_with
from hetuflow_server.http.openapi import openapi_config
from hetuflow_server.http.problems import problem_of
from hetuflow_server.http.repeating import declare_keys, repeating_with
from hetuflow_server.http.strictness import declare_queries, refuse_unreadable
from hetuflow_server.services.health import Readiness


def rest_api(services: Services, readiness: Readiness, origins: Sequence[str] = ()) -> Litestar:
    """Return the REST API; every route declares what it needs, and the guard sees to it.

    `origins` are those whose pages may call it from a browser.
    """
    api = Litestar(
        [
            *(healthz, readyz, system_router),
            *(auth_router, oidc_router, users_router, api_keys_router),
            *(jobs_router, tasks_router, task_instances_router, artifacts_router, bulk_router),
            task_stream_router,
            *(flow_runs_router, explanations_router),
            *(limits_router, secrets_router, agents_router),
            *(calendars_router, schedules_router, backfills_router, schedule_previews_router),
            *(servers_router, namespaces_router, events_router, daemons_router),
            *(audit_router, webhooks_router, docs_router),
        ],
        dependencies=services.dependencies(readiness),
        exception_handlers={HTTPException: problem_of, Exception: problem_of},
        openapi_config=openapi_config(),
        middleware=[compressing],
        cors_config=cross_origin(origins),
        guards=[guard_with(services.access.principal)],
        before_request=repeating_with(services.repeating, refuse_unreadable),
        logging_config=None,
    )
    declare_queries(api)
    resolve_one_by_one(api)
    return declare_keys(api)

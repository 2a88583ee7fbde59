"""The REST API, put together."""

from __future__ import annotations

from collections.abc import Sequence

from litestar import Litestar
from litestar.exceptions import HTTPException

from hetuflow_server.agents.routes import agents_router
from hetuflow_server.app.services import Services
from hetuflow_server.apply.routes import jobs_router
from hetuflow_server.artifacts.routes import artifacts_router
from hetuflow_server.audit.routes import audit_router
from hetuflow_server.bulk.routes import bulk_router
from hetuflow_server.cluster.routes import servers_router
from hetuflow_server.daemons.routes import daemons_router
from hetuflow_server.events.routes import events_router
from hetuflow_server.flows.routes import flow_runs_router
from hetuflow_server.http.authorization import guard_with
from hetuflow_server.http.compression import compressing
from hetuflow_server.http.cross_origin import cross_origin
from hetuflow_server.http.docs_routes import docs_router
from hetuflow_server.http.idempotency import declare_keys, repeating_with
from hetuflow_server.http.inline_dependencies import resolve_one_by_one
from hetuflow_server.http.openapi import openapi_config
from hetuflow_server.http.problems import problem_of
from hetuflow_server.http.request_validation import declare_queries, refuse_unreadable
from hetuflow_server.identity.keys.routes import api_keys_router
from hetuflow_server.identity.logins.routes import auth_router
from hetuflow_server.identity.namespaces.routes import namespaces_router
from hetuflow_server.identity.oidc.routes import oidc_router
from hetuflow_server.identity.users.routes import users_router
from hetuflow_server.limits.routes import limits_router
from hetuflow_server.schedules.backfills.routes import backfills_router
from hetuflow_server.schedules.calendars.routes import calendars_router
from hetuflow_server.schedules.previews.routes import schedule_previews_router
from hetuflow_server.schedules.routes import schedules_router
from hetuflow_server.secrets.routes import secrets_router
from hetuflow_server.status.health import Readiness
from hetuflow_server.status.health_routes import healthz, readyz
from hetuflow_server.status.routes import system_router
from hetuflow_server.tasks.explain.routes import explanations_router
from hetuflow_server.tasks.instance_routes import task_instances_router
from hetuflow_server.tasks.routes import tasks_router
from hetuflow_server.tasks.stream.routes import task_stream_router
from hetuflow_server.webhooks.routes import webhooks_router


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
        before_request=repeating_with(services.idempotent_requests, refuse_unreadable),
        logging_config=None,
    )
    # First: it changes the OpenAPI document, which `declare_queries` may have to read.
    declare_keys(api)
    declare_queries(api)
    resolve_one_by_one(api)
    return api

"""Single jobs over REST: created once, changed by merging, guarded by their tags."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest

from hetuflow_core.errors import Conflict, Invalid, NotFound, Stale
from tests.e2e.conftest import System


def document(**spec: Any) -> dict[str, Any]:
    return {"name": f"job-{uuid4().hex[:12]}", "run": {"command": ["true"]}, **spec}


def test_a_job_is_created_once(lone_server: System) -> None:
    wanted = document(schedules=[{"name": "daily", "cron": "@daily"}])
    job = lone_server.client.create_job(wanted)
    assert (job.namespace, job.name, job.version, job.enabled) == ("default", wanted["name"], 1, True)
    assert [one["name"] for one in job.spec["schedules"]] == ["daily"]
    with pytest.raises(Conflict, match="already") as caught:
        lone_server.client.create_job({**wanted, "priority": 1})
    assert caught.value.code == "job.exists"
    assert lone_server.client.job_by_id(job.id) == job


def test_faults_of_a_new_job_are_all_named_and_nothing_is_made(lone_server: System) -> None:
    wanted = document(priority=2000, timeuot="1m")
    with pytest.raises(Invalid) as caught:
        lone_server.client.create_job(wanted)
    assert {fault.field for fault in caught.value.faults} == {"priority", "timeuot"}
    with pytest.raises(NotFound):
        lone_server.client.job("default", wanted["name"])
    with pytest.raises(NotFound, match="namespace"):
        lone_server.client.create_job(document(namespace="nowhere"))


def test_a_change_is_merged_and_makes_a_version(lone_server: System) -> None:
    job = lone_server.client.create_job(
        document(params={"a": 1, "b": {"c": 2}}, timeout="1m", schedules=[{"name": "it", "cron": "@daily"}])
    )
    changed = lone_server.client.change_job(
        job.id, {"params": {"b": {"d": 3}, "a": None}, "timeout": None, "priority": 7}
    )
    assert (changed.version, changed.spec["priority"]) == (2, 7)
    assert changed.spec["params"] == {"b": {"c": 2, "d": 3}}
    assert changed.spec.get("timeout") is None
    assert [one["name"] for one in changed.spec["schedules"]] == ["it"]
    assert lone_server.client.change_job(job.id, {"priority": 7}) == changed
    versions = list(lone_server.client.job_versions(job.id, page_size=1))
    assert [(one.version, one.spec["priority"]) for one in versions] == [(2, 7), (1, 500)]
    assert all(one.created_by for one in versions)


def test_a_job_cannot_become_another(lone_server: System) -> None:
    job = lone_server.client.create_job(document())
    with pytest.raises(Invalid) as caught:
        lone_server.client.change_job(job.id, {"name": "other", "namespace": "other", "kind": "job"})
    assert {fault.field for fault in caught.value.faults} == {"name", "namespace"}
    with pytest.raises(Invalid):
        lone_server.client.change_job(job.id, {"run": None})
    assert lone_server.client.job_by_id(job.id) == job


def test_whoever_has_read_an_older_state_changes_nothing(lone_server: System) -> None:
    job = lone_server.client.create_job(document())
    etag = lone_server.client.job_etag(job.id)
    changed = lone_server.client.change_job(job.id, {"priority": 1}, etag=etag)
    with pytest.raises(Stale) as caught:
        lone_server.client.change_job(job.id, {"priority": 2}, etag=etag)
    assert caught.value.code == "stale"
    assert lone_server.client.job_by_id(job.id) == changed
    # A schedule is part of what was read; that it fires is not.
    etag = lone_server.client.job_etag(job.id)
    lone_server.client.add_schedule(job.id, {"name": "it", "cron": "@daily"})
    with pytest.raises(Stale):
        lone_server.client.change_job(job.id, {"priority": 2}, etag=etag)
    assert lone_server.client.change_job(
        job.id, {"priority": 2}, etag=f'"other", {lone_server.client.job_etag(job.id)}'
    )


def test_schedules_have_tags_too(lone_server: System) -> None:
    job = lone_server.client.create_job(document(schedules=[{"name": "it", "cron": "@daily"}]))
    schedule = lone_server.client.schedule("default", job.name, "it")
    url = f"{lone_server.url}/api/v1/schedules/{schedule.id}"
    credential = {"Authorization": f"Bearer {lone_server.api_key}"}
    etag = httpx.get(url, headers=credential).headers["etag"]
    guarded = {**credential, "If-Match": etag}
    first = httpx.patch(url, json={"cron": "@weekly"}, headers=guarded)
    assert (first.status_code, first.headers["etag"] != etag) == (200, True)
    second = httpx.patch(url, json={"cron": "@hourly"}, headers=guarded)
    assert (second.status_code, second.json()["code"]) == (412, "stale")
    assert lone_server.client.schedule_by_id(schedule.id).spec["cron"] == "@weekly"


def test_jobs_are_found_by_their_labels(lone_server: System) -> None:
    mark = uuid4().hex
    both = lone_server.client.create_job(document(labels={"mark": mark, "team": "data"}))
    lone_server.client.create_job(document(labels={"mark": mark}))
    assert len(list(lone_server.client.jobs(labels={"mark": mark}))) == 2
    assert [job.id for job in lone_server.client.jobs(labels={"mark": mark, "team": "data"})] == [both.id]
    refused = lone_server.get("/api/v1/jobs?label=nonsense")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")

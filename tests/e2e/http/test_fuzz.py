"""A slice of `make fuzz`: requests made from the OpenAPI document meet no error of the server's."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import serving
from tests.support.http.fuzzing import fuzz
from tests.support.postgres.databases import DatabaseServer


def test_whatever_is_asked_the_answer_is_one_the_document_knows(database_server: DatabaseServer) -> None:
    # A server of its own: what is asked may well end everybody's keys.
    with serving(database_server) as system:
        faults = fuzz(system.url, system.api_key, examples=4, phases="fuzzing", seed=1, timeout=240)
    if faults is not None:
        pytest.fail(faults[-20_000:], pytrace=False)

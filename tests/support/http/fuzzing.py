"""schemathesis against a running server: requests made from its OpenAPI document, right and wrong ones."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.processes.processes import clean_environment, run

# An answer may refuse; it may not be an error of the server's, nor one the document does not know of.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)


def fuzz(
    url: str, api_key: str, *, examples: int, phases: str, seed: int | None, timeout: float
) -> str | None:
    """Return None when every answer was what the document says, else what was not."""
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/api/v1/openapi.json"),
        *("--header", f"Authorization: Bearer {api_key}"),
        *("--checks", ",".join(CHECKS), "--phases", phases, "--max-examples", str(examples)),
        *("--continue-on-failure", "--suppress-health-check", "all", "--warnings", "off", "--no-color"),
        *("--request-timeout", "60"),
        # Its answer goes on for as long as somebody reads it.
        *("--exclude-operation-id", "follow_tasks"),
        *(() if seed is None else ("--seed", str(seed))),
    ]
    with TemporaryDirectory() as folder:  # it leaves a cache where it runs
        ended = run(command, env=clean_environment(), cwd=Path(folder), timeout=timeout)
    return None if ended.returncode == 0 else ended.stdout + ended.stderr

"""`make fuzz`: ask a server of its own whatever its OpenAPI document allows and forbids."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing

from tests.e2e.conftest import serving
from tests.support.http.fuzzing import fuzz
from tests.support.postgres.databases import RunDatabases


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="requests per call and phase")
    parser.add_argument("--seed", type=int, help="of an earlier run, to repeat it")
    parser.add_argument("--timeout", type=float, default=3_600, help="seconds at most")
    given = parser.parse_args()
    with closing(RunDatabases()) as databases, serving(databases.server()) as system:
        faults = fuzz(
            system.url,
            system.api_key,
            examples=given.examples,
            phases="examples,coverage,fuzzing",
            seed=given.seed,
            timeout=given.timeout,
        )
    print(faults or "Every answer was one the document knows of.")
    return int(faults is not None)


if __name__ == "__main__":
    sys.exit(main())

"""`python covered_keeper.py CONFIG FOLDER VERSION …`: a keeper that coverage counts, told how by CONFIG.

A keeper is started apart from everything that is installed and with no environment, which keeps coverage out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import coverage

CONFIG = "COVERAGE_PROCESS_CONFIG"


def covered_program(config: str, folder: Path, version: str, options: Sequence[str]) -> list[str]:
    return [sys.executable, str(Path(__file__)), config, str(folder), version, *options]


def main(config: str, *arguments: str) -> int:
    os.environ[CONFIG] = config
    coverage.process_startup()
    # After that, or nobody would see what it defines.
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    from hetuflow_agent.keeper.startup import main as keep  # noqa: PLC0415  see above

    return keep(arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

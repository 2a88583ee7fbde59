"""`make test-bounds`: run tests with the lowest and with the highest versions that pyproject.toml allows."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")
# Names of uv for how it chooses among the versions that are allowed.
RESOLUTIONS = {"lowest": "lowest-direct", "highest": "highest"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-bounds", description=__doc__)
    parser.add_argument("--only", choices=RESOLUTIONS, action="append", help="one of the two, not both")
    parser.add_argument(
        "tests", nargs="*", help="what pytest gets; the tests of HTTP and the gateway if empty"
    )
    given = parser.parse_args()
    if not UV.exists():
        parser.error("uv is not installed: run `make install` where the package index has it.")
    tests = given.tests or [
        str(path) for name in ("http", "gateway") for path in ROOT.glob(f"tests/*/{name}")
    ]
    failed = [name for name in given.only or RESOLUTIONS if not passed(name, tests)]
    print(f"Tests failed with the {' and the '.join(failed)} allowed versions." if failed else "All passed.")
    return len(failed)


def passed(name: str, tests: Sequence[str]) -> bool:
    """Run the tests in a virtual environment that is removed afterwards."""
    with TemporaryDirectory(prefix=f"hetuflow-{name}-") as folder:
        python = Path(folder) / "bin" / "python"
        run(UV, "venv", "--quiet", "--python", sys.executable, folder)
        run(
            *(UV, "pip", "install", "--quiet", "--python", python),
            *("--resolution", RESOLUTIONS[name], "--editable", f"{ROOT}[dev]"),
        )
        print(f"The {name} allowed versions:", flush=True)
        run(UV, "pip", "freeze", "--quiet", "--exclude-editable", "--python", python)
        return run(python, "-m", "pytest", "-q", *tests, check=False) == 0


def run(*command: str | Path, check: bool = True) -> int:
    return subprocess.run(command, cwd=ROOT, check=check).returncode


if __name__ == "__main__":
    sys.exit(main())

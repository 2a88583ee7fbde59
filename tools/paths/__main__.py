"""`python -m tools.paths [--checkout FOLDER] [--repetitions N]`; `make paths` runs it.

Without `--checkout` it measures this checkout and writes the page. With it, it prints the lists of another
checkout, which must have its own `.venv`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tools.paths.page import PATHS, Measured, page
from tools.paths.scenarios import Scenarios
from tools.paths.system import MeasuredSystem
from tools.paths.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/design/paths.md"
_REPETITIONS = 20


def measure(checkout: Path, repetitions: int) -> Measured:
    with MeasuredSystem(checkout) as system:
        scenarios = Scenarios(system, repetitions)
        windows = scenarios.run()
        system.stop()
        trace = Trace.read(system.traces)
        windows = scenarios.narrowed(windows, trace)
        return {
            key: {program: trace.files(program, windows[key], path.loops) for program in path.programs}
            for key, path in PATHS.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.paths")
    parser.add_argument("--checkout", type=Path, help="print the lists of this checkout; write no page")
    parser.add_argument("--repetitions", type=int, default=_REPETITIONS, metavar="N")
    options = parser.parse_args()
    measured = measure((options.checkout or ROOT).resolve(), options.repetitions)
    if options.checkout is None:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(measured, options.repetitions), encoding="utf-8")
    for key, programs in measured.items():
        for program, files in programs.items():
            print(f"{PATHS[key].title}, {program}: {len(files)} files")
            if options.checkout is not None:
                print(*(f"  {file.name}  {file.function}" for file in files), sep="\n")


if __name__ == "__main__":
    main()

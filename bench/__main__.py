"""`python -m bench [figure …] [--quick] [--json FILE]`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bench import report
from bench.figure import FULL, QUICK, BenchFailed, Context, Measure
from bench.figures import (
    agent_rate,
    big_log,
    cancel_latency,
    claim_backlog,
    claim_history,
    event_burst,
    flows,
    log_ingest,
    noop_rate,
    schedule_arithmetic,
    schedule_ticks,
    start_latency,
    start_precision,
    waiting_agents,
)
from bench.machine import inspect_machine
from bench.system import NotStarted, System
from hetuflow_core.errors import HetuflowError

# In the order they run: the idle one first, while nothing has happened yet.
FIGURES: dict[str, Measure] = {
    "latency": start_latency.measure,
    "cancel": cancel_latency.measure,
    "precision": start_precision.measure,
    "noop": noop_rate.measure,
    "agent": agent_rate.measure,
    "flows": flows.measure,
    "log-ingest": log_ingest.measure,
    "big-log": big_log.measure,
    "waiting": waiting_agents.measure,
    "schedule-ticks": schedule_ticks.measure,
    "events": event_burst.measure,
    "claim-history": claim_history.measure,
    "claim-backlog": claim_backlog.measure,
    "schedule-arithmetic": schedule_arithmetic.measure,
}
# These take long or say nothing about the system as a whole, and run only when they are named.
OPTIONAL = frozenset(
    {
        *("waiting", "flows", "claim-history", "claim-backlog", "schedule-arithmetic", "schedule-ticks"),
        "events",
    }
)
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Options:
    figures: Sequence[str]
    quick: bool
    json: Path | None


def parse(arguments: Sequence[str]) -> Options:
    usual = [name for name in FIGURES if name not in OPTIONAL]
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures Hetuflow beside the limits of this machine, in one run. "
        f"Figures: {', '.join(FIGURES)}. Without a name: {', '.join(usual)}.",
    )
    parser.add_argument("figures", nargs="*", metavar="figure", help="what to measure")
    parser.add_argument(
        "--quick", action="store_true", help="under a minute; good for a look, not for a claim"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="add every repetition to FILE as JSON lines"
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.figures if name not in FIGURES]
    if unknown:
        parser.error(f"there is no figure {unknown[0]}: choose from {', '.join(FIGURES)}")
    wanted = given.figures or usual
    return Options([name for name in FIGURES if name in wanted], given.quick, given.json)


def run(options: Options) -> None:
    began, load = time.monotonic(), os.getloadavg()[0]
    with System() as system:
        machine = inspect_machine(system, load)
        context = Context(
            system,
            QUICK if options.quick else FULL,
            lambda what: print(f"{time.monotonic() - began:4.0f} s  {what}", file=sys.stderr, flush=True),
        )
        try:
            figures = [FIGURES[name](context) for name in options.figures]
        except (BenchFailed, HetuflowError) as error:
            # The log goes with the folder, and without it nobody could tell why.
            raise BenchFailed(f"{error}\n{system.server_errors()}".strip()) from error
    print(report.table(figures))
    print()
    took = f"{time.monotonic() - began:.0f} s"
    how = f"Median (lowest..highest) of {context.pace.repetitions} interleaved repetitions in {took}"
    notes = [*machine.sentences(), how, *(note for figure in figures for note in figure.notes)]
    print("\n".join(f"- {note}." for note in notes))
    if options.json:
        report.append_json(options.json, machine, figures)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        run(options)
    except (BenchFailed, NotStarted, HetuflowError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted; everything is stopped.", file=sys.stderr)
        return _INTERRUPTED
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

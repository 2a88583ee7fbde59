"""`python -m bench [figure …] [--smoke | --quick | --full] [--json FILE]`, or `… peers --install`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bench import report
from bench.figure import FULL, QUICK, SMOKE, USUAL, Context, Measure, Pace, check
from bench.figures import (
    agent_rate,
    big_log,
    cancel_latency,
    claim_backlog,
    claim_history,
    creation,
    due_at_once,
    event_burst,
    flows,
    idle_cost,
    lists,
    log_ingest,
    noop_rate,
    peers,
    schedule_arithmetic,
    schedule_ticks,
    start_latency,
    start_precision,
    startup,
    waiting_agents,
)
from bench.machine import inspect_machine
from bench.peers.installing import install_all
from bench.results import Failure, Measured, Results, save
from bench.system import NotStarted, System

# In the order they run: the idle ones first, while nothing has happened yet; what loads most comes last.
FIGURES: dict[str, Measure] = {
    "idle": idle_cost.measure,
    "startup": startup.measure,
    "latency": start_latency.measure,
    "cancel": cancel_latency.measure,
    "precision": start_precision.measure,
    "create": creation.measure,
    "noop": noop_rate.measure,
    "peers": peers.measure,
    "due-at-once": due_at_once.measure,
    "agent": agent_rate.measure,
    "flows": flows.measure,
    "log-ingest": log_ingest.measure,
    "big-log": big_log.measure,
    "waiting": waiting_agents.measure,
    "schedule-arithmetic": schedule_arithmetic.measure,
    "schedule-ticks": schedule_ticks.measure,
    "events": event_burst.measure,
    "claim-backlog": claim_backlog.measure,
    "claim-history": claim_history.measure,
    "lists": lists.measure,
}
_INTERRUPTED = 130
_RESULTS = Path("bench-results")


@dataclass(frozen=True, slots=True)
class Options:
    figures: Sequence[str]
    pace: Pace
    json: Path
    install: bool = False


def parse(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures Hetuflow beside the limits of this machine, in one run. "
        f"Figures: {', '.join(FIGURES)}. Without a name: all of them.",
    )
    parser.add_argument("figures", nargs="*", metavar="figure", help="what to measure")
    paces = parser.add_mutually_exclusive_group()
    paces.add_argument(
        "--quick", action="store_const", dest="pace", const=QUICK, help="small: for a look, not for a claim"
    )
    paces.add_argument(
        "--full", action="store_const", dest="pace", const=FULL, help="millions of rows and more repetitions"
    )
    paces.add_argument(
        "--smoke", action="store_const", dest="pace", const=SMOKE, help="tiny: whether every figure works"
    )
    parser.set_defaults(pace=USUAL)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help=f"what to write, instead of a new file in {_RESULTS}/"
    )
    parser.add_argument(
        "--install", action="store_true", help="with peers: install what they need, instead of measuring"
    )
    given = parser.parse_args(arguments)
    if given.install and given.figures != ["peers"]:
        parser.error("--install goes with the figure peers alone")
    unknown = [name for name in given.figures if name not in FIGURES]
    if unknown:
        parser.error(f"there is no figure {unknown[0]}: choose from {', '.join(FIGURES)}")
    wanted = given.figures or FIGURES
    file = given.json or _RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    return Options([name for name in FIGURES if name in wanted], given.pace, file, given.install)


def run(options: Options) -> Results:
    """Measure one figure after the other; what one cannot measure leaves the others alone."""
    began, load = time.monotonic(), os.getloadavg()[0]

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:4.0f} s  {what}", file=sys.stderr, flush=True)

    with System() as system:
        results = Results(inspect_machine(system, load), options.pace)
        for name in options.figures:
            _measure(name, Context(system, options.pace, say), results)
            results.seconds = time.monotonic() - began
            # Each time: what was measured is kept even if the rest never is.
            save(options.json, results)
    return results


def _measure(name: str, context: Context, results: Results) -> None:
    if not context.system.come_to_rest():
        context.say(f"{name}: PostgreSQL is still busy with what came before")
    began, load = time.monotonic(), os.getloadavg()[0]
    try:
        figure = FIGURES[name](context)
        check(figure)
    except Exception as error:  # noqa: BLE001  whatever one of them meets, the others are measured
        # The log goes with the folder, and without it nobody could tell why.
        what = str(error) or type(error).__name__
        why = f"{what}\n{context.system.server_errors()}".strip()
        context.say(f"{name} could not be measured: {why}")
        results.failures.append(Failure(name, why))
    else:
        took = time.monotonic() - began
        results.measured.append(Measured(figure, took, load, os.getloadavg()[0]))


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if options.install:
            install_all(lambda what: print(what, file=sys.stderr, flush=True))
            return 0
        results = run(options)
    except NotStarted as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted; everything is stopped.", file=sys.stderr)
        return _INTERRUPTED
    print(report.document(results))
    print(f"\nAll of it, with every repetition: {options.json}", file=sys.stderr)
    return 1 if results.failures else 0


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

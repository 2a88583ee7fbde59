"""`hetuflow selftest`."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from hetuflow_selftest.nemesis.faults import FAULTS
from hetuflow_selftest.oracle.verdict import Outcome
from hetuflow_selftest.report.page import as_page
from hetuflow_selftest.report.text import as_json, as_text
from hetuflow_selftest.run import Judgement, perform
from hetuflow_selftest.scene.network import AUTO, NETWORKS
from hetuflow_selftest.settings import RunSettings, quick

_SECONDS = click.FloatRange(0, min_open=True)
EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.UNKNOWN: 2}


@click.command("selftest")
@click.option("--seed", type=int, help="Of an earlier run, to repeat it; drawn if it is not given.")
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1), help="How many seeds in a row.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    type=click.Choice(sorted(FAULTS)),
    help="Only this one; may be given several times.",
)
@click.option("--quick", "is_quick", is_flag=True, help="Fewer processes, and shorter.")
@click.option(
    "--network",
    default=AUTO,
    show_default=True,
    type=click.Choice(NETWORKS),
    help="Hosts of their own for all parts, which takes root, or proxies between them.",
)
@click.option(
    "--rate",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.1, 10),
    help="How much work there is: 0.5 is half of it.",
)
@click.option(
    "--calm-latency", type=_SECONDS, metavar="SECONDS", help="How late a fire may start while all is well."
)
@click.option("--fault-latency", type=_SECONDS, metavar="SECONDS", help="How late, while something is wrong.")
@click.option(
    "--recovery", type=_SECONDS, metavar="SECONDS", help="How long after a fault things may still be late."
)
@click.option(
    "--report",
    "report",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the report and the histories are left; without it only those of a failed run are.",
)
def selftest(
    seed: int | None,
    runs: int,
    faults: tuple[str, ...],
    is_quick: bool,
    network: str,
    rate: float,
    report: Path | None,
    **bounds: float | None,
) -> int:
    """Torment a system of its own on this machine, and judge whether it kept its promises.

    Exits with 0 when all held, 1 when something did not, 2 when a fault had no effect or could not be made.

    Example: hetuflow selftest --seed 7 --fault kill-leader --report /tmp/selftest
    """
    first = secrets.randbelow(1_000_000) if seed is None else seed
    chosen = faults or tuple(sorted(FAULTS))
    outcomes = set()
    for number in range(first, first + runs):
        usual = quick(number, chosen) if is_quick else RunSettings(seed=number, faults=chosen)
        told = {name: value for name, value in bounds.items() if value is not None}
        settings = replace(usual, network=network, rate=rate, bounds=replace(usual.bounds, **told))
        with _ended_in_order(), _working_folder() as work:
            found = asyncio.run(perform(settings, work, tell=lambda line: click.echo(line, err=True)))
            outcomes.add(found.outcome)
            click.echo(as_text(settings, found))
            if report is not None or found.outcome is Outcome.FAIL:
                _leave(settings, found, work, report or Path(f"selftest-{number}"))
    worst = next(one for one in (Outcome.FAIL, Outcome.UNKNOWN, Outcome.PASS) if one in outcomes)
    return EXIT_CODES[worst]


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does: everything that was started is ended."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _working_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hetuflow-selftest-"))
    # For the account that root lends to PostgreSQL.
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _leave(settings: RunSettings, found: Judgement, work: Path, report: Path) -> None:
    """Put the report where it was wanted, with the histories and logs it was made of."""
    target = report / f"seed-{settings.seed}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(work, target, ignore=shutil.ignore_patterns("postgres", "*-data"))
    (target / "report.html").write_text(as_page(settings, found), encoding="utf-8")
    (target / "report.json").write_text(as_json(settings, found), encoding="utf-8")
    (target / "report.txt").write_text(as_text(settings, found) + "\n", encoding="utf-8")
    click.echo(f"The report is {target / 'report.html'}.", err=True)

"""`hetuflow import`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from hetuflow_core.errors import Invalid, NotFound
from hetuflow_core.importers import Imported, as_yaml, import_crontab, import_timers
from hetuflow_core.importers.result import Names, text_of
from hetuflow_core.schedule import zone

_STANDARD_INPUT = "-"
_DIRECTORY = click.option("-d", "--directory", metavar="DIR", help="Write one file per job into this folder.")
_TIMEZONE = click.option(
    "--timezone", metavar="NAME", help="Time zone of the source host; that of this host if not given."
)
_FILES = click.argument("files", nargs=-1, required=True, metavar="FILE...")


@click.group("import")
def import_group() -> None:
    """Convert crontabs and systemd timers to job files."""


@import_group.command("crontab")
@_FILES
@click.option(
    "--system/--user",
    default=None,
    help="Whether lines name a user, as in /etc/crontab; detected from the file name if not given.",
)
@_TIMEZONE
@_DIRECTORY
def crontab(files: tuple[str, ...], system: bool | None, timezone: str | None, directory: str | None) -> None:
    """Convert crontabs to job files.

    Parts that cannot be converted are reported and kept as comments. - reads standard input, as in:
    crontab -l | hetuflow import crontab -

    Example: hetuflow import crontab /etc/crontab
    """
    names, local_zone = Names(), _zone(timezone)
    imported: list[Imported] = []
    for name, text in _read(files).items():
        of_system = name == "/etc/crontab" or "/cron.d/" in name if system is None else system
        imported += import_crontab(text, name, system=of_system, timezone=local_zone, names=names)
    _write_jobs(imported, directory)


@import_group.command("systemd-timer")
@_FILES
@_TIMEZONE
@_DIRECTORY
def systemd_timer(files: tuple[str, ...], timezone: str | None, directory: str | None) -> None:
    """Convert systemd timers and their services to job files.

    Parts that cannot be converted are reported. Services and drop-ins (NAME.d/*.conf) in the folder of a
    timer are read automatically; name files in other folders too.

    Example: hetuflow import systemd-timer /etc/systemd/system/backup.timer
    """
    given = _read(files)
    folders = sorted({Path(name).parent for name in given if name.endswith((".timer", ".service"))})
    # Skip dangling links, which are common in unit folders.
    neighbours = _read(
        [
            str(path)
            for folder in folders
            for pattern in ("*.service", "*timer.d/*.conf", "*service.d/*.conf")
            for path in sorted(folder.glob(pattern))
            if path.is_file()
        ]
    )
    _write_jobs(import_timers({**neighbours, **given}, timezone=_zone(timezone)), directory)


def _read(names: Sequence[str]) -> dict[str, str]:
    texts = {}
    for name in names:
        try:
            if name == _STANDARD_INPUT:
                texts["standard input"] = sys.stdin.buffer.read().decode()
            else:
                texts[name] = Path(name).read_bytes().decode()
        except FileNotFoundError:
            raise NotFound(f"There is no file {name}: check the name.") from None
        except OSError as error:
            raise Invalid(f"{name} cannot be read ({error.strerror}).") from None
        except UnicodeDecodeError:
            raise Invalid(f"{name} is not UTF-8: save it as UTF-8.") from None
    return texts


def _write_jobs(imported: Sequence[Imported], directory: str | None) -> None:
    jobs = [(job, job.document) for job in imported if job.document is not None]
    if directory is None:
        click.echo(as_yaml([job for job, _ in jobs]), nl=False)
    else:
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        for job, document in jobs:
            (folder / f"{document['name']}.yaml").write_text(text_of(job), encoding="utf-8")
    remarks = [f"{job.place}: {remark}" for job in imported for remark in job.losses]
    count = f"{len(jobs)} document{'' if len(jobs) == 1 else 's'}"
    where = f" written to {directory}" if directory else ""
    summary = f"{len(remarks)} remark{'' if len(remarks) == 1 else 's'}{':' if remarks else '.'}"
    click.echo(f"{count}{where}; {summary}", err=True)
    for remark in remarks:
        click.echo(f"  {remark}", err=True)


def _zone(given: str | None) -> str:
    """Return the given time zone, or that of this host."""
    local = Path("/etc/localtime")
    linked = str(local.resolve()).partition("/zoneinfo/")[2] if local.is_symlink() else ""
    name = given or os.environ.get("TZ", "").removeprefix(":") or linked or "UTC"
    name = "UTC" if name in {"Etc/UTC", "Etc/UCT", "UCT", "Universal", "Zulu"} else name
    zone(name)
    return name

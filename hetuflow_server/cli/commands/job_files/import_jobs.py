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
_DIRECTORY = click.option(
    "-d", "--directory", metavar="DIR", help="Write a file for each job into this folder."
)
_TIMEZONE = click.option(
    "--timezone", metavar="NAME", help="Of the host they are from; this one's if not given."
)
_FILES = click.argument("files", nargs=-1, required=True, metavar="FILE...")


@click.group("import")
def import_group() -> None:
    """Make job files from jobs of other schedulers."""


@import_group.command("crontab")
@_FILES
@click.option(
    "--system/--user",
    default=None,
    help="Whether lines name a user, as in /etc/crontab; told by the name of the file if not given.",
)
@_TIMEZONE
@_DIRECTORY
def crontab(files: tuple[str, ...], system: bool | None, timezone: str | None, directory: str | None) -> None:
    """Print crontabs as job files; what could not be carried over is told, and stands in comments.

    - reads standard input, as in: crontab -l | hetuflow import crontab -

    Example: hetuflow import crontab /etc/crontab
    """
    names, here = Names(), _zone(timezone)
    found: list[Imported] = []
    for name, text in _read(files).items():
        of_system = name == "/etc/crontab" or "/cron.d/" in name if system is None else system
        found += import_crontab(text, name, system=of_system, timezone=here, names=names)
    _tell(found, directory)


@import_group.command("systemd-timer")
@_FILES
@_TIMEZONE
@_DIRECTORY
def systemd_timer(files: tuple[str, ...], timezone: str | None, directory: str | None) -> None:
    """Print systemd timers with their services as job files; what could not be carried over is told.

    Services are looked for beside their timers, and drop-ins (NAME.d/*.conf) beside both; give those that
    lie elsewhere too.

    Example: hetuflow import systemd-timer /etc/systemd/system/backup.timer
    """
    given = _read(files)
    folders = sorted({Path(name).parent for name in given if name.endswith((".timer", ".service"))})
    # Not links to what is no longer there: folders of units are full of them.
    beside = _read(
        [
            str(path)
            for folder in folders
            for pattern in ("*.service", "*timer.d/*.conf", "*service.d/*.conf")
            for path in sorted(folder.glob(pattern))
            if path.is_file()
        ]
    )
    _tell(import_timers({**beside, **given}, timezone=_zone(timezone)), directory)


def _read(names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            if name == _STANDARD_INPUT:
                found["standard input"] = sys.stdin.buffer.read().decode()
            else:
                found[name] = Path(name).read_bytes().decode()
        except FileNotFoundError:
            raise NotFound(f"There is no file {name}: check the name.") from None
        except OSError as error:
            raise Invalid(f"{name} cannot be read ({error.strerror}): give files that can be.") from None
        except UnicodeDecodeError:
            raise Invalid(f"{name} is not UTF-8: save it as UTF-8.") from None
    return found


def _tell(found: Sequence[Imported], directory: str | None) -> None:
    made = [(one, one.document) for one in found if one.document is not None]
    if directory is None:
        click.echo(as_yaml([one for one, _ in made]), nl=False)
    else:
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        for one, document in made:
            (folder / f"{document['name']}.yaml").write_text(text_of(one), encoding="utf-8")
    losses = [f"{one.place}: {loss}" for one in found for loss in one.losses]
    count = f"{len(made)} document{'' if len(made) == 1 else 's'}"
    where = f" written to {directory}" if directory else ""
    remarks = f"{len(losses)} remark{'' if len(losses) == 1 else 's'}{':' if losses else '.'}"
    click.echo(f"{count}{where}; {remarks}", err=True)
    for loss in losses:
        click.echo(f"  {loss}", err=True)


def _zone(given: str | None) -> str:
    """The time zone people mean who wrote the jobs: what is given, or that of this host."""
    local = Path("/etc/localtime")
    linked = str(local.resolve()).partition("/zoneinfo/")[2] if local.is_symlink() else ""
    name = given or os.environ.get("TZ", "").removeprefix(":") or linked or "UTC"
    name = "UTC" if name in {"Etc/UTC", "Etc/UCT", "UCT", "Universal", "Zulu"} else name
    zone(name)
    return name

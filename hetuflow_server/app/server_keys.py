"""The keys of the servers that secrets are encrypted with, from the settings."""

from __future__ import annotations

from hetuflow_core.errors import ConfigInvalid, Fault
from hetuflow_server.settings import HttpSettings

_SHORTEST = 32


def server_keys(settings: HttpSettings) -> list[str]:
    """Return `server.secret_key`, which encrypts, and then the keys of `server.secret_keyring`."""
    keys = [settings.secret_key.reveal()]
    if settings.secret_keyring is not None:
        try:
            lines = settings.secret_keyring.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise _fault(f"{settings.secret_keyring} cannot be read ({error}).") from None
        keys += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if any(len(key) < _SHORTEST for key in keys):
            raise _fault(f"{settings.secret_keyring} has a key of fewer than {_SHORTEST} characters.")
    return keys


def _fault(message: str) -> ConfigInvalid:
    return ConfigInvalid("The configuration has a fault.", faults=[Fault("server.secret_keyring", message)])

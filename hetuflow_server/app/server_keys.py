"""The encryption keys of the servers, from the settings."""

from __future__ import annotations

from hetuflow_core.errors import ConfigInvalid, Fault
from hetuflow_server.settings import HttpSettings

_MIN_LENGTH = 32


def server_keys(settings: HttpSettings) -> list[str]:
    """Return `server.secret_key`, which encrypts, followed by the keys of `server.secret_keyring`."""
    keys = [settings.secret_key.reveal()]
    if settings.secret_keyring is not None:
        try:
            lines = settings.secret_keyring.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise _fault(f"{settings.secret_keyring} cannot be read ({error}).") from None
        keys += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if any(len(key) < _MIN_LENGTH for key in keys):
            raise _fault(f"{settings.secret_keyring} has a key of fewer than {_MIN_LENGTH} characters.")
    return keys


def _fault(message: str) -> ConfigInvalid:
    return ConfigInvalid("The configuration has a fault.", faults=[Fault("server.secret_keyring", message)])

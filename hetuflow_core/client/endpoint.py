"""Where the server is and how to get in."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hetuflow_core.environment_variables import KEY_VARIABLE, URL_VARIABLE
from hetuflow_core.errors import ConfigInvalid
from hetuflow_core.runtime.tls import Trust

DEFAULT_URL: Final = "http://127.0.0.1:8600"
# Files: authorities to trust, a certificate to show, and its key.
TRUST_VARIABLES: Final = ("HETUFLOW_CA_FILE", "HETUFLOW_CLIENT_CERT", "HETUFLOW_CLIENT_KEY")


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str
    # Kept out of repr, and so out of tracebacks and logs.
    api_key: str | None = field(repr=False)
    trust: Trust = field(default_factory=Trust)

    @classmethod
    def resolve(
        cls,
        url: str | None,
        api_key: str | None,
        env: Mapping[str, str],
        trust: Trust | None = None,
    ) -> Endpoint:
        return cls(
            checked_url(url or env.get(URL_VARIABLE) or DEFAULT_URL),
            checked_key(api_key or env.get(KEY_VARIABLE) or None),
            trust or Trust(*(Path(env[name]) if env.get(name) else None for name in TRUST_VARIABLES)),
        )

    @property
    def encrypted(self) -> bool:
        return self.url.startswith("https:")


def s256(verifier: str) -> str:
    """The challenge of a verifier, as PKCE has it."""
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")


def checked_url(url: str) -> str:
    """`url` without a slash at its end; `ConfigInvalid` if no request could be sent there."""
    written = url.strip().rstrip("/")
    try:
        parts = urlsplit(written)
        port = parts.port
    except ValueError:
        raise ConfigInvalid(f"{_shown(written)} is no address: write one such as {DEFAULT_URL}.") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigInvalid(
            f"The server's address carries a user or password, which are not used: leave them out and set "
            f"{KEY_VARIABLE}."
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ConfigInvalid(
            f"{_shown(written)} is no server address: write http:// or https:// first, as in {DEFAULT_URL}."
        )
    if parts.query or parts.fragment or not written.isprintable() or " " in written:
        raise ConfigInvalid(
            f"{_shown(written)} has more than a server address should: write one such as {DEFAULT_URL}."
        )
    return written


def checked_key(api_key: str | None) -> str | None:
    """`api_key` without the newline a file leaves at its end; an error never shows what is in it."""
    if api_key is None:
        return None
    key = api_key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigInvalid(
            f"The API key holds characters that no key has: check {KEY_VARIABLE} or the api_key given."
        )
    return key


def _shown(url: str) -> str:
    return repr(url if len(url) <= 100 else f"{url[:100]}…")  # noqa: PLR2004  a line's worth

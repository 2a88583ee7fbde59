"""Shared rules for the values of keys. Each function returns the fault of a value, or None.

Messages do not quote addresses, because they may contain passwords.
"""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import urlsplit

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def http_url_fault(url: str) -> str | None:
    expected = "must be of the form http://HOST:PORT or https://HOST:PORT"
    if not url.isprintable() or " " in url:
        return expected
    try:
        parts = urlsplit(url)
        port_is_usable = parts.port is None or parts.port > 0
    except ValueError:
        return expected
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port_is_usable:
        return expected
    if parts.username is not None or parts.password is not None:
        return "must not contain a user name or password: credentials have separate keys"
    if parts.query or parts.fragment:
        return "must end with the path: remove ? or # and the text after it"
    return None


def host_fault(host: str) -> str | None:
    if "://" in host or "/" in host or not host.isprintable() or " " in host:
        return "must be a host name or an address alone, without http:// and port"
    return None


def name_fault(name: str) -> str | None:
    if _NAME.fullmatch(name) is None:
        return "must be at most 128 letters, digits, '.', '_' or '-', and start with a letter or digit"
    return None


def names_fault(names: tuple[str, ...]) -> str | None:
    if not names:
        return "must have at least one name"
    if len(set(names)) < len(names):
        return "must not have a name twice"
    return next((f"has a name that {fault}" for fault in map(name_fault, names) if fault), None)


def whole_seconds_fault(duration: timedelta) -> str | None:
    return "must be a number of whole seconds" if duration % timedelta(seconds=1) else None

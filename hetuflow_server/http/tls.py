"""TLS of the server: which certificate it shows, and how a new one takes over without a restart."""

from __future__ import annotations

import asyncio
import signal
import ssl
from dataclasses import dataclass
from pathlib import Path

import structlog

from hetuflow_core.errors import HostBlocked

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.http")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    cert: Path
    key: Path
    # Callers must show a certificate that one of these has signed; None: nobody must.
    client_ca: Path | None = None


class ServerTls:
    """Part of the application: SIGHUP makes it read its files again; connections that are open go on."""

    name = "tls"

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._context: ssl.SSLContext | None = None

    @property
    def context(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = _context(self._files)
        return self._context

    async def start(self) -> None:
        self._context = _context(self._files)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)

    async def stop(self) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)

    def reload(self) -> bool:
        """Show the certificate that is in the files now; keep the former one if that cannot be used."""
        try:
            # On one of its own first: half of a new pair would leave the old one unusable.
            _context(self._files)
            _load(self.context, self._files)
        except HostBlocked as error:
            log.error("The new certificate cannot be used; the former one stays.", error=error.message)  # noqa: TRY400  the traceback adds nothing
            return False
        log.info("The certificate was read again.", file=str(self._files.cert))
        return True


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    try:
        context.load_cert_chain(files.cert, files.key)
    except (OSError, ssl.SSLError) as error:
        raise HostBlocked(
            f"The certificate {files.cert} with the key {files.key} cannot be used ({_told(error)}): "
            "check server.tls_cert and server.tls_key."
        ) from error
    if files.client_ca is not None:
        try:
            context.load_verify_locations(files.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise HostBlocked(
                f"{files.client_ca} holds no certificates that can be used ({_told(error)}): check "
                "server.tls_client_ca."
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED


def _told(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__

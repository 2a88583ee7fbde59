"""What agents, the command line and the client trust when they connect by TLS, and what they show."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from hetuflow_core.errors import ConfigInvalid


@dataclass(frozen=True, slots=True)
class Trust:
    """None: the authorities this host trusts, and no certificate of our own."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Certificates and names are always checked: there is no way to leave that out."""
        try:
            context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        except (OSError, ssl.SSLError) as error:
            raise ConfigInvalid(f"{self.ca} holds no certificates that can be trusted ({error}).") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key)
            except (OSError, ssl.SSLError) as error:
                raise ConfigInvalid(f"The certificate {self.cert} cannot be used ({error}).") from error
        return context

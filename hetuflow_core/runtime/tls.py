"""TLS settings of outgoing connections: trusted authorities and the client certificate."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from hetuflow_core.errors import ConfigInvalid


@dataclass(frozen=True, slots=True)
class Trust:
    """Defaults: the authorities that this host trusts, and no client certificate."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Create the TLS context; certificates and host names are always verified."""
        try:
            context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        except (OSError, ssl.SSLError) as error:
            raise ConfigInvalid(f"{self.ca} contains no valid CA certificates ({error}).") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key)
            except (OSError, ssl.SSLError) as error:
                raise ConfigInvalid(f"The certificate {self.cert} cannot be used ({error}).") from error
        return context

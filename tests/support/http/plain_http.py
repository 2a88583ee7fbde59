"""For requests to `http://`: to read the world's certificates takes longer than the request."""

from __future__ import annotations

import ssl
from typing import Final

# Trusts nobody, so that nothing encrypted is asked by mistake.
UNENCRYPTED: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

"""Importing this module first prevents two libraries from loading unused dependencies.

structlog imports rich for tracebacks with local variables. Hetuflow never prints local variables, because
they may contain secrets, and rich takes longer to load than structlog. httpx imports rich and pygments for
its command line. Other code can still import these libraries. Only programs import this module.
"""

from __future__ import annotations

import sys

# None makes the import fail.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401  imported without rich
    finally:
        del sys.modules["rich"]

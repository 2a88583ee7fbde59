"""Importing this first keeps two libraries from loading what no program of ours uses of them.

structlog wants rich for tracebacks with local variables; ours never show those, because of the secrets among
them, and rich takes longer to load than structlog itself. httpx has a command of its own and loads rich and
pygments for it. Whoever wants either for something else loads it as ever. For programs only, not for
libraries: there it is not ours to choose.
"""

from __future__ import annotations

import sys

# None stands for "not to be had".
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401  under the condition above
    finally:
        del sys.modules["rich"]

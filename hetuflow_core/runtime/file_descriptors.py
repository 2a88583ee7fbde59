"""The limit of open files and connections of this process."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

# More is never needed, and kernels reject much higher limits (`fs.nr_open`).
_MOST: Final = 1_048_576


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard limit; return the new soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with suppress(OSError, ValueError):  # the limit stays unchanged
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            soft = limit
    return _MOST if soft == resource.RLIM_INFINITY else soft


def descriptor_ceiling() -> int:
    """Return the highest limit that this process could set."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)

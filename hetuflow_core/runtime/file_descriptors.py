"""How many files and connections this process may have open."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

# Above this no system of ours goes, and kernels refuse much more (`fs.nr_open`).
_MOST: Final = 1_048_576


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one, as every user may; return what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # then it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return _MOST if soft == resource.RLIM_INFINITY else soft


def descriptor_ceiling() -> int:
    """Return how far this process could raise its limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)

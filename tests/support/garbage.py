"""What is left for a collection of garbage: whatever only cycles keep."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_of(kind: type) -> Iterator[list[object]]:
    """Gives what is found, when the block has ended, of the garbage of this kind made in it."""
    gc.collect()
    found: list[object] = []
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += [one for one in gc.garbage if isinstance(one, kind)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()

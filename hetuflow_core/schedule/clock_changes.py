"""Wall-clock times that a clock change skips or repeats: a schedule's `dst`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from hetuflow_core.fields import Key


class Gap(StrEnum):
    """The action for a fixed wall-clock time that a clock change skips."""

    SHIFT = "shift"  # to the first instant after the gap
    SKIP = "skip"


class Fold(StrEnum):
    """Which pass counts for a fixed wall-clock time that a change of clocks repeats."""

    FIRST = "first"
    LAST = "last"
    BOTH = "both"


class Dst(msgspec.Struct, frozen=True, kw_only=True):
    gap: Annotated[
        Gap, Key("A time that clocks leave out fires at the first instant after the gap, or not at all.")
    ] = Gap.SHIFT
    fold: Annotated[
        Fold, Key("A time that clocks repeat fires at its first pass, at its last, or at both.")
    ] = Fold.FIRST

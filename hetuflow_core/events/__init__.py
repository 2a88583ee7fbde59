"""Events, the event triggers of schedules, and the effect of an event on a schedule."""

from hetuflow_core.events.names import LONGEST_KEY, LONGEST_NAME, check_name, check_pattern, patterns_of
from hetuflow_core.events.spec import (
    EXPRESSION_NAMES,
    Absence,
    Debounce,
    EventSpec,
    Mode,
    Throttle,
    Wanted,
    describe,
)

# As text; put larger data into a file and its address into the event.
LARGEST_PAYLOAD = 64 * 1024

__all__ = [
    "EXPRESSION_NAMES",
    "LARGEST_PAYLOAD",
    "LONGEST_KEY",
    "LONGEST_NAME",
    "Absence",
    "Debounce",
    "EventSpec",
    "Mode",
    "Throttle",
    "Wanted",
    "check_name",
    "check_pattern",
    "describe",
    "patterns_of",
]

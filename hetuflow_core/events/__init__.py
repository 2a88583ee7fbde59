"""Events and the schedules that wait for them: what they say, and what an event does to each."""

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

# As text; what is larger belongs into a file whose address the event carries.
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

"""Whether an ended attempt is tried again, after how long, and with what changed.

A loss (the agent vanished with the instance) says nothing about the job, so it never spends `max_attempts`;
but work that takes its third agent down with it is quarantined.
"""

from hetuflow_core.retry.deciding import (
    LOSSES_TO_QUARANTINE,
    GiveUp,
    GiveUpReason,
    Retry,
    clip_retry,
    deadline_passed,
    decide,
    longest_delay,
)
from hetuflow_core.retry.output_pattern import LONGEST_TEXT, check_pattern, found_in
from hetuflow_core.retry.policy import (
    RETRYABLE,
    Backoff,
    Change,
    Condition,
    MemoryChange,
    Outcome,
    Reaction,
    RetryPolicy,
    Rule,
)

__all__ = [
    "LONGEST_TEXT",
    "LOSSES_TO_QUARANTINE",
    "RETRYABLE",
    "Backoff",
    "Change",
    "Condition",
    "GiveUp",
    "GiveUpReason",
    "MemoryChange",
    "Outcome",
    "Reaction",
    "Retry",
    "RetryPolicy",
    "Rule",
    "check_pattern",
    "clip_retry",
    "deadline_passed",
    "decide",
    "found_in",
    "longest_delay",
]

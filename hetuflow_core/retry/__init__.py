"""Whether an ended attempt is tried again, after how long, and with what changed.

A loss (the agent vanished with the instance) says nothing about the job, so it never spends `max_attempts`;
but work that takes its third agent down with it is quarantined.
"""

from hetuflow_core.retry.decision import (
    LOSSES_TO_QUARANTINE,
    GiveUp,
    GiveUpReason,
    Retry,
    clip_retry,
    deadline_passed,
    decide,
    longest_delay,
)
from hetuflow_core.retry.forms import EXIT_CODE, RETRYABLE
from hetuflow_core.retry.memory_change import MemoryChange
from hetuflow_core.retry.output_pattern import LONGEST_TEXT, check_pattern, found_in
from hetuflow_core.retry.policy import (
    Backoff,
    InstanceOutcome,
    Reaction,
    RetryChange,
    RetryPolicy,
    Rule,
    RuleCondition,
)

__all__ = [
    "EXIT_CODE",
    "LONGEST_TEXT",
    "LOSSES_TO_QUARANTINE",
    "RETRYABLE",
    "Backoff",
    "GiveUp",
    "GiveUpReason",
    "InstanceOutcome",
    "MemoryChange",
    "Reaction",
    "Retry",
    "RetryChange",
    "RetryPolicy",
    "Rule",
    "RuleCondition",
    "check_pattern",
    "clip_retry",
    "deadline_passed",
    "decide",
    "found_in",
    "longest_delay",
]

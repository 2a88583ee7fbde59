"""Decide whether an ended attempt is retried, after which delay, and with which changes.

A loss (the agent disappeared with the instance) is not a failure of the job, so it never spends
`max_attempts`. A task that is lost for the third time is quarantined, because it may crash its agents.
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
    RetryRule,
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
    "RetryRule",
    "RuleCondition",
    "check_pattern",
    "clip_retry",
    "deadline_passed",
    "decide",
    "found_in",
    "longest_delay",
]

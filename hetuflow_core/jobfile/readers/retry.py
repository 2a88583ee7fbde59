from __future__ import annotations

from collections.abc import Mapping

from hetuflow_core.fields import shape_of
from hetuflow_core.fields.value_reader import SectionReader, ValueReader
from hetuflow_core.retry import Reaction, RetryPolicy, RuleCondition

RETRY_KEYS = tuple(shape_of(RetryPolicy).keys)
CONDITION_KEYS = tuple(shape_of(RuleCondition).keys)
REACTION_KEYS = tuple(shape_of(Reaction).keys)


def read_retry(given: ValueReader, _unsupported: Mapping[str, str]) -> RetryPolicy | None:
    return shape_of(RetryPolicy).read(given)


def refuse_idle_rules(job: SectionReader, policy: RetryPolicy, memory: int) -> None:
    """Refuse rules that could change nothing because of what the job says elsewhere."""
    retry = job.get("retry")
    entries = retry.entries() if retry is not None and policy.rules else None
    items = entries["rules"].items() if entries is not None else None
    if items is None or len(items) != len(policy.rules):
        return  # one of them is at fault already
    for item, rule in zip(items, policy.rules, strict=True):
        change = rule.then.change.memory
        if change is not None and change.times is not None and not memory:
            item.refuse("multiplies memory the job does not ask for: set placement.resources.memory.")

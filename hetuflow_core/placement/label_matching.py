"""Match conditions against labels, and tolerations against taints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hetuflow_core.placement.agents import Taint
from hetuflow_core.placement.requirements import (
    Effect,
    Expression,
    Operator,
    Preference,
    Requirements,
    Toleration,
    TolerationOperator,
)

# As strict as the job file: int() also accepts "1_000", " 7 " and digits of other scripts.
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")


def holds(condition: Expression | Preference, labels: Mapping[str, str]) -> bool:
    """As in Kubernetes, a missing label is not in any list and neither greater nor less than any value."""
    value = labels.get(condition.key)
    match condition.operator:
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None
        case Operator.IN:
            return value in condition.values
        case Operator.NOT_IN:
            return value not in condition.values
        case Operator.GREATER:
            return _exceeds(value, condition.values[0])
        case Operator.LESS:
            return _exceeds(condition.values[0], value)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect is not None and toleration.effect is not taint.effect:
        return False
    if toleration.key is not None and toleration.key != taint.key:
        return False
    return toleration.operator is TolerationOperator.EXISTS or toleration.value == taint.value


def untolerated(requirements: Requirements, taints: tuple[Taint, ...], *effects: Effect) -> list[Taint]:
    """Return the taints with one of `effects` that the work does not tolerate."""
    return [
        taint
        for taint in taints
        if taint.effect in effects
        and not any(tolerates(toleration, taint) for toleration in requirements.tolerations)
    ]


def evicting_taint(requirements: Requirements, taints: tuple[Taint, ...]) -> Taint | None:
    """Return the NoExecute taint that evicts running instances of this work, if any."""
    return next(iter(untolerated(requirements, taints, Effect.NO_EXECUTE)), None)


def _exceeds(greater: str | None, less: str | None) -> bool:
    if greater is None or less is None or not (_WHOLE.fullmatch(greater) and _WHOLE.fullmatch(less)):
        return False
    return int(greater) > int(less)

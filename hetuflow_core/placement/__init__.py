"""Placement: what work asks of an agent, and whether, how well and how soon an agent may take it.

`requirements.py` has what a job asks and its canonical form, `agents.py` what is known of an agent,
`filters.py` and `scores.py` the reasons, `anti_affinity.py` unwanted neighbours, `decision.py` the decision,
`verdict_cache.py` its cache, `agent_state.py` what changes from one moment to the next, `resource_stock.py`
what of a batch fits. All of it is pure.
"""

from hetuflow_core.placement.agent_state import (
    AgentState,
    absent,
    busy,
    crowding,
    latest_due,
    served,
    takes_work,
)
from hetuflow_core.placement.agents import (
    AgentFacts,
    Taint,
    agent_labels,
    automatic_labels,
    parse_taint,
)
from hetuflow_core.placement.anti_affinity import RunningJob, discomfort, unwanted
from hetuflow_core.placement.decision import (
    FILTER_ENTRY_POINTS,
    LONGEST_DELAY,
    SCORE_ENTRY_POINTS,
    Placement,
    Refusal,
    Verdict,
)
from hetuflow_core.placement.filters import STANDARD_FILTERS, Filter
from hetuflow_core.placement.label_matching import evicting_taint, holds, tolerates
from hetuflow_core.placement.requirements import (
    DEFAULT_POOL,
    MOST_MEMORY,
    PLACEMENT,
    Affinity,
    AntiAffinity,
    Effect,
    Expression,
    Neighbour,
    Operator,
    Preference,
    Requirements,
    Resources,
    Toleration,
    TolerationOperator,
    UnlikedNeighbour,
    adjusted,
    canonical_requirements,
    digest,
    normalised,
    requirements_from,
)
from hetuflow_core.placement.resource_stock import fit_batch, free, lacking, times, total
from hetuflow_core.placement.scores import STANDARD_SCORES, Score
from hetuflow_core.placement.verdict_cache import VerdictCache

__all__ = [
    "DEFAULT_POOL",
    "FILTER_ENTRY_POINTS",
    "LONGEST_DELAY",
    "MOST_MEMORY",
    "PLACEMENT",
    "SCORE_ENTRY_POINTS",
    "STANDARD_FILTERS",
    "STANDARD_SCORES",
    "Affinity",
    "AgentFacts",
    "AgentState",
    "AntiAffinity",
    "Effect",
    "Expression",
    "Filter",
    "Neighbour",
    "Operator",
    "Placement",
    "Preference",
    "Refusal",
    "Requirements",
    "Resources",
    "RunningJob",
    "Score",
    "Taint",
    "Toleration",
    "TolerationOperator",
    "UnlikedNeighbour",
    "Verdict",
    "VerdictCache",
    "absent",
    "adjusted",
    "agent_labels",
    "automatic_labels",
    "busy",
    "canonical_requirements",
    "crowding",
    "digest",
    "discomfort",
    "evicting_taint",
    "fit_batch",
    "free",
    "holds",
    "lacking",
    "latest_due",
    "normalised",
    "parse_taint",
    "requirements_from",
    "served",
    "takes_work",
    "times",
    "tolerates",
    "total",
    "unwanted",
]

"""Every word the agent says to a server: the only place on the agent that speaks HTTP to it.

What goes wrong is told in the project's errors, so that callers decide by meaning:

    no answer, 408, 425, 429, 5xx     Unanswered     ask again later, `retry_after` if the server said when
    401 / 403                         Unauthenticated / Denied
    409 agent.session_replaced        Conflict       and `on_replaced` is told: this process has to end
    any other 4xx                     Conflict, NotFound, TooLarge or Invalid, with the server's own words
"""

from __future__ import annotations

from hetuflow_agent.gateway.clients import BlockingGateway, Gateway
from hetuflow_agent.gateway.codec import MessageCodec
from hetuflow_agent.gateway.refusals import Unanswered
from hetuflow_agent.gateway.session import Session

__all__ = ["BlockingGateway", "Gateway", "MessageCodec", "Session", "Unanswered"]

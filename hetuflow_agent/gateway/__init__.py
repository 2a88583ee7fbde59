"""All requests of the agent to a server; no other package of the agent speaks HTTP to the server.

Failures are raised as errors of the project, so that callers decide by meaning:

    no answer, 408, 425, 429, 5xx     Unanswered     repeat later, after `retry_after` if it is set
    401 / 403                         Unauthenticated / Denied
    409 agent.session_replaced        Conflict       and `on_replaced` is called: this process has to end
    any other 4xx                     Conflict, NotFound, TooLarge or Invalid, with the server's message
"""

from __future__ import annotations

from hetuflow_agent.gateway.clients import BlockingGateway, Gateway
from hetuflow_agent.gateway.codec import MessageCodec
from hetuflow_agent.gateway.failures import Backoff, Unanswered
from hetuflow_agent.gateway.session import Session

__all__ = ["Backoff", "BlockingGateway", "Gateway", "MessageCodec", "Session", "Unanswered"]

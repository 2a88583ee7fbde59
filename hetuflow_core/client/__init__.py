"""The REST client: `Hetuflow` waits for each call, `AsyncHetuflow` is for asyncio; both do the same."""

from hetuflow_core.client.blocking import Hetuflow
from hetuflow_core.client.concurrent import AsyncHetuflow
from hetuflow_core.client.following import LogEnd, LogPiece

__all__ = ["AsyncHetuflow", "Hetuflow", "LogEnd", "LogPiece"]

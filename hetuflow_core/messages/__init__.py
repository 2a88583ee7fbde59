"""The messages between agents and servers.

Every request and every response is one `Envelope` as JSON. Times are epoch milliseconds, durations are
milliseconds. An agent sends its token in the Authorization header; `session_id` identifies its process.

    POST /api/v1/gateway/register    Register   → Registered       once per session, first
    POST /api/v1/gateway/poll        Poll       → Polled           waits up to wait_ms
    POST /api/v1/gateway/heartbeat   Heartbeat  → HeartbeatKept    renews claims, returns claims to stop
    POST /api/v1/gateway/reports     Reports    → ReportsTaken     start, finish, release; one result each;
                                                                   may include a poll that does not wait
    POST /api/v1/gateway/logs        LogChunks  → LogChunksTaken   appends by offset, one result each
    POST /api/v1/gateway/artifacts/store   StoreArtifact → ArtifactStored    appends to a file by offset
    POST /api/v1/gateway/artifacts/fetch   FetchArtifact → ArtifactFetched   a chunk of an earlier task's file
    POST /api/v1/gateway/secrets     FetchSecrets → SecretsFetched  the secrets of a claim
    POST /api/v1/gateway/acknowledgements  Acknowledgements → AcknowledgementsTaken   the results of commands

A request of a replaced session is answered with 409 and the code `agent.session_replaced`: that process exits
and does not register again.
"""

from __future__ import annotations

from hetuflow_core.messages.artifacts import (
    ArtifactFetched,
    ArtifactOutcome,
    ArtifactStored,
    FetchArtifact,
    StoreArtifact,
)
from hetuflow_core.messages.assignments import (
    ArtifactSource,
    Assignment,
    InputFile,
    Probe,
    RunSpec,
    SecretPlace,
)
from hetuflow_core.messages.command_results import Acknowledgement, Acknowledgements, AcknowledgementsTaken
from hetuflow_core.messages.envelope import GATEWAY_PATH, Envelope, MessageKind, Metadata
from hetuflow_core.messages.heartbeats import Heartbeat, HeartbeatKept, HostUsage, Progress, Readiness
from hetuflow_core.messages.logs import LogChunk, LogChunks, LogChunksTaken, LogOutcome, LogResult
from hetuflow_core.messages.polls import Cancel, Command, Poll, Polled
from hetuflow_core.messages.registration import Held, LimitMeans, Register, Registered
from hetuflow_core.messages.reports import (
    Finish,
    Release,
    ReportOutcome,
    ReportResult,
    Reports,
    ReportsTaken,
    Start,
    Usage,
)
from hetuflow_core.messages.secrets import DeliveredSecret, FetchSecrets, SecretsFetched

__all__ = [
    "GATEWAY_PATH",
    "Acknowledgement",
    "Acknowledgements",
    "AcknowledgementsTaken",
    "ArtifactFetched",
    "ArtifactOutcome",
    "ArtifactSource",
    "ArtifactStored",
    "Assignment",
    "Cancel",
    "Command",
    "DeliveredSecret",
    "Envelope",
    "FetchArtifact",
    "FetchSecrets",
    "Finish",
    "Heartbeat",
    "HeartbeatKept",
    "Held",
    "HostUsage",
    "InputFile",
    "LimitMeans",
    "LogChunk",
    "LogChunks",
    "LogChunksTaken",
    "LogOutcome",
    "LogResult",
    "MessageKind",
    "Metadata",
    "Poll",
    "Polled",
    "Probe",
    "Progress",
    "Readiness",
    "Register",
    "Registered",
    "Release",
    "ReportOutcome",
    "ReportResult",
    "Reports",
    "ReportsTaken",
    "RunSpec",
    "SecretPlace",
    "SecretsFetched",
    "Start",
    "StoreArtifact",
    "Usage",
]

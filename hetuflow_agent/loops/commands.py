"""Executes commands of the server once each, and sends the result.

The server repeats a command until its result has arrived. Results are kept on disk under the id of the
command, so a repeated command, also after a restart, is answered again and not executed again.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from uuid import UUID

import structlog

from hetuflow_agent.gateway import Session, Unanswered
from hetuflow_core.agent.commands import MODE_COMMANDS, CommandKind
from hetuflow_core.errors import HetuflowError
from hetuflow_core.messages import Acknowledgement, Acknowledgements, AcknowledgementsTaken, Command
from hetuflow_core.runtime.loop import Loop
from hetuflow_core.runtime.timers import Timers

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.commands")

_EVERY: Final = 1.0
_LOOP_STOP: Final = 2.0
_MOST_PER_REQUEST: Final = 100
_LONGEST_ERROR: Final = 2_000


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a command; `then` is called after the server has taken the result."""

    result: dict[str, Any] = field(default_factory=dict)
    then: Callable[[], None] | None = None


Handler = Callable[[dict[str, Any]], Awaitable[Done]]


class AcknowledgementGateway(Protocol):
    async def acknowledge(self, request: Acknowledgements) -> AcknowledgementsTaken: ...


class AnswerRecords(Protocol):
    async def keep_answer(self, answer: Acknowledgement) -> None: ...

    async def answer_to(self, command_id: UUID) -> Acknowledgement | None: ...


class Commands:
    name = "commands"

    def __init__(
        self,
        gateway: AcknowledgementGateway,
        session: Session,
        records: AnswerRecords,
        handlers: Mapping[CommandKind, Handler],
        *,
        timers: Timers,
        rng: random.Random,
    ) -> None:
        self._gateway = gateway
        self._session = session
        self._records = records
        self._handlers = handlers
        self._received: deque[Command] = deque()
        # Results that the server has not taken yet, and the callbacks for that moment.
        self._answers: dict[UUID, Acknowledgement] = {}
        self._then: dict[UUID, Callable[[], None]] = {}
        self._latest_mode: UUID | None = None
        self._loop = Loop(
            self.name, self.run_once, timers=timers, rng=rng, every=_EVERY, stop_timeout=_LOOP_STOP
        )

    async def start(self) -> None:
        await self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    def receive(self, commands: Iterable[Command]) -> None:
        """Take commands from an answer of the server, in the event loop."""
        before = len(self._received)
        self._received.extend(commands)
        if len(self._received) > before:
            self._loop.wake()

    async def run_once(self) -> int:
        while self._received:
            command = self._received.popleft()
            if command.id not in self._answers:
                self._answers[command.id] = await self._answer(command)
        if not self._answers:
            return 0
        batch = list(self._answers.values())[:_MOST_PER_REQUEST]
        try:
            await self._gateway.acknowledge(Acknowledgements(self._session.session_id, batch))
        except Unanswered as error:
            log.warning("command results not sent, retrying", error=error.message)
            return 0
        except HetuflowError as error:
            # The server refuses these results; it repeats the commands that it still waits for.
            log.warning("server refused command results", error=error.message)
        for answer in batch:
            del self._answers[answer.command_id]
            if (then := self._then.pop(answer.command_id, None)) is not None:
                then()
        return len(batch)

    async def _answer(self, command: Command) -> Acknowledgement:
        """Execute the command unless that was done before; return the result in both cases."""
        if (known := await self._known(command.id)) is not None:
            return known
        if command.kind in MODE_COMMANDS and not self._is_latest_mode(command):
            return Acknowledgement(command.id, {"ignored": "a later command says otherwise"})
        try:
            done = await self._handlers[command.kind](command.payload)
        except HetuflowError as error:
            faults = "; ".join(map(str, error.faults))
            answer = Acknowledgement(command.id, error=f"{error.message} {faults}".strip()[:_LONGEST_ERROR])
        except Exception as error:
            log.exception("command failed unexpectedly", kind=command.kind)
            what = f"The agent met an error it did not expect ({type(error).__name__}); its log has more."
            answer = Acknowledgement(command.id, error=what)
        else:
            answer = Acknowledgement(command.id, done.result)
            if done.then is not None:
                self._then[command.id] = done.then
        log.info("command executed", kind=command.kind.value, error=answer.error)
        await self._keep(answer)
        return answer

    def _is_latest_mode(self, command: Command) -> bool:
        """Poll and heartbeat may deliver two commands in the wrong order; their ids show which is newer."""
        if self._latest_mode is not None and command.id < self._latest_mode:
            return False
        self._latest_mode = command.id
        return True

    async def _known(self, command_id: UUID) -> Acknowledgement | None:
        try:
            return await self._records.answer_to(command_id)
        except HetuflowError:
            return None

    async def _keep(self, answer: Acknowledgement) -> None:
        try:
            await self._records.keep_answer(answer)
        except HetuflowError as error:
            # A repeated command is executed again then, which is harmless for every kind.
            log.warning("command result not written to disk", error=error.message)

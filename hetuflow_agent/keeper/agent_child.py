"""The agent as a child of the keeper: where the keeper is the first process, as in a container.

The keeper starts a killed agent again, which then continues its work. An agent that exits by itself ends the
keeper too, with its exit code. The keeper forwards signals to the agent.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
# An agent that lived this long is not failing at its start.
_WELL_AFTER: Final = 60.0


class AgentChild:
    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = list(argv)
        self._cwd = os.getcwd()  # noqa: PTH109  the keeper imports little
        self._started_at = 0.0
        self._pause = _FIRST_PAUSE
        self._asked_to_end = False
        self.pid: int | None = None
        # When to start the agent; None while it runs, and after its end.
        self.start_at: float | None = 0.0
        self.exit_code: int | None = None

    @property
    def over(self) -> bool:
        return self.exit_code is not None

    def start_if_due(self, now: float) -> int | None:
        """Start the agent if it is time; return its pid then."""
        if self.start_at is None or now < self.start_at:
            return None
        self.start_at, self._started_at = None, now
        os.chdir(self._cwd)
        self.pid = os.posix_spawn(
            self._argv[0],
            self._argv,
            os.environ,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
        )
        return self.pid

    def forward(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._asked_to_end = True
            self.give_up()
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def give_up(self) -> None:
        """Do not start the agent again."""
        if self.pid is None and not self.over:
            self.start_at, self.exit_code = None, 0

    def note_end(self, status: int, now: float) -> None:
        """The agent was waited for: start it again if it was killed and was not asked to end."""
        self.pid = None
        code = os.waitstatus_to_exitcode(status)
        if code >= 0 or self._asked_to_end:
            self.exit_code = code if code >= 0 else 128 - code
            return
        self._pause = _FIRST_PAUSE if now - self._started_at > _WELL_AFTER else self._pause
        self.start_at = now + self._pause
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause)

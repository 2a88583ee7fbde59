"""When answers become a verdict: pure."""

from __future__ import annotations

from dataclasses import dataclass

from hetuflow_core.messages import Probe


@dataclass(slots=True)
class Tally:
    """Counts answers of one kind in a row; the verdict changes when there are enough of them."""

    probe: Probe
    verdict: bool | None = None
    _answer: bool | None = None
    _times: int = 0

    def note(self, answer: bool) -> bool:
        """Take an answer; return whether the verdict is another now."""
        self._times = self._times + 1 if answer is self._answer else 1
        self._answer = answer
        enough = self.probe.success_threshold if answer else self.probe.failure_threshold
        if self._times < enough or self.verdict is answer:
            return False
        self.verdict = answer
        return True

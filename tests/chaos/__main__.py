"""`make chaos-bugs`: put bugs into servers on purpose, and see that the self-test finds each of them."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from hetuflow_selftest.oracle.verdict import Outcome
from hetuflow_selftest.report.page import as_page
from hetuflow_selftest.report.text import as_text
from hetuflow_selftest.run import Judgement, perform
from hetuflow_selftest.scene.scene import Programs
from hetuflow_selftest.settings import quick

# bug → (a fault that brings it to light, how long it lasts at least, the verdict that must be red)
FOUND_BY: Final = {
    # The former leader goes on before the new one has moved every cursor: what comes after that is too late
    # to do harm, fence or not.
    "unfenced": ("stop-leader", 0.1, "no write of a former leader"),
    "leader-kept": ("stop-leader", 6.0, "no write of a former leader"),
    "rescue-by-id": ("kill-agent", 6.0, "nothing that was heard of is lost"),
    "hostname-identity": ("kill-leader", 6.0, "no write of a former leader"),
}
_SEEDS: Final = range(1, 6)


def find(bug: str, seed: int, folder: Path) -> Judgement:
    """Run a system whose servers all have this bug."""
    fault, hold, _ = FOUND_BY[bug]
    program = (str(Path(__file__).with_name("broken_server.py")), bug, "server")
    settings = replace(quick(seed, (fault,)), calm=3.0, hold=hold, pace=1.0)
    found = asyncio.run(perform(settings, folder, programs=Programs(server=program), tell=print))
    print(as_text(settings, found))
    (folder / "report.html").write_text(as_page(settings, found))
    return found


def main(bugs: list[str]) -> int:
    missed = []
    for bug in bugs or list(FOUND_BY):
        for seed in _SEEDS:
            print(f"\n{bug}, seed {seed}")
            folder = Path(tempfile.mkdtemp(prefix=f"hetuflow-{bug}-"))
            folder.chmod(0o755)
            verdicts = {verdict.name: verdict for verdict in find(bug, seed, folder).verdicts}
            if verdicts[FOUND_BY[bug][2]].outcome is Outcome.FAIL:
                print(f"{bug} was found, see {folder / 'report.html'}.")
                break
        else:
            missed.append(bug)
    print(f"Not found: {', '.join(missed)}." if missed else "Every bug was found.")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

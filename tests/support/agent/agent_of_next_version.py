"""The agent as another version would call itself: `python agent_of_next_version.py`."""

from __future__ import annotations

import sys
from pathlib import Path

VERSION = "999.0"

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    import hetuflow_core

    # Before anything else is imported that asks for it.
    hetuflow_core.__version__ = VERSION
    from hetuflow_agent.cli import main

    sys.exit(main())

"""`python -I -S .../keeper/__main__.py FOLDER VERSION`: runs the keeper of one agent's data folder."""

import sys
from pathlib import Path

# The interpreter is isolated from installed packages, so the path to this package must be added.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hetuflow_agent.keeper.startup import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

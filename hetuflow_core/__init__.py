"""Domain types and pure decisions of Hetuflow, shared by servers, agents and clients."""

import sys

from hetuflow_core.moved_modules import MovedModules

__version__ = "0.1.0"

sys.meta_path.append(MovedModules)

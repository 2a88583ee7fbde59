from __future__ import annotations

from hetuflow_core.jobfile.limits import SCOPE

read_scope = SCOPE.read

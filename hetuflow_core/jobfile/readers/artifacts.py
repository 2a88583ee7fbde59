from __future__ import annotations

from hetuflow_core.fields import shape_of
from hetuflow_core.jobfile.artifacts import ArtifactSpec

ARTIFACT_KEYS = tuple(shape_of(ArtifactSpec).keys)

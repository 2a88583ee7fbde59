"""Environment variables that configure how commands and programs reach their server."""

from __future__ import annotations

from typing import Final

URL_VARIABLE: Final = "HETUFLOW_URL"
KEY_VARIABLE: Final = "HETUFLOW_API_KEY"
PROFILE_VARIABLE: Final = "HETUFLOW_PROFILE"
NAMESPACE_VARIABLE: Final = "HETUFLOW_NAMESPACE"

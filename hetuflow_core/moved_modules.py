"""Import paths of earlier releases: they keep working, with a warning, until 0.3.

To remove them, delete this module and its imports.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

# Former path of a module → its path.
MODULES: Final[Mapping[str, str]] = {
    "hetuflow_core.permissions": "hetuflow_core.access.permissions",
    "hetuflow_core.roles": "hetuflow_core.access.roles",
    "hetuflow_server.services.verifiers": "hetuflow_server.identity.verifiers",
}
# Module that became a package → the modules in it that have its names.
NAMES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "hetuflow_core.resources": {
        "agents": (
            "Agent",
            "AgentCommand",
            "AgentDetail",
            "AgentSummary",
            "HeldInstance",
            "HostSample",
            "KickRequest",
        ),
        "artifacts": ("Artifact", "ArtifactList"),
        "cluster": ("Leader", "Server", "ServerInfo"),
        "jobs": ("Job", "JobVersionSummary"),
        "limits": ("Limit", "LimitChange", "LimitRequest"),
        "namespaces": ("BindRequest", "Namespace", "NamespaceChange", "NamespaceRequest"),
        "pages": ("Page",),
        "tasks": (
            *("LateResult", "ListedInstance", "PriorityChange", "RunRequest", "RunsRequest"),
            *("Task", "TaskChange", "TaskDetail", "TaskInstance", "TaskList"),
        ),
    },
}


class MovedModules:
    """A finder and loader for former paths; it is the last finder, so other imports are not slowed down."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG003 - the protocol of finders
        if name in MODULES:
            return ModuleSpec(name, cls)  # type: ignore[arg-type]  # a loader by its methods
        if any(module.startswith(f"{name}.") for module in MODULES):
            return ModuleSpec(name, None, is_package=True)
        return None

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:  # noqa: ARG004 - the protocol of loaders
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        former = module.__name__
        _warn(former, MODULES[former])
        sys.modules[former] = importlib.import_module(MODULES[former])


def moved_name(package: str, name: str) -> Any:
    """Return a name that a module had before it became this package."""
    for module, names in NAMES[package].items():
        if name in names:
            _warn(f"{package}.{name}", f"{package}.{module}.{name}")
            return getattr(importlib.import_module(f"{package}.{module}"), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def _warn(former: str, path: str) -> None:
    # Level 3 is the import statement: Python skips the frames of the import system.
    warnings.warn(
        f"{former} is now {path}; the former path will be removed in 0.3.", DeprecationWarning, stacklevel=3
    )

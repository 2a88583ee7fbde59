"""Import paths of earlier releases lead to the same objects and say where these are now."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from hetuflow_core import resources
from hetuflow_core.moved_modules import MODULES, NAMES

MOVED_NAMES = [
    (package, module, name)
    for package, modules in NAMES.items()
    for module, names in modules.items()
    for name in names
]


@pytest.mark.parametrize(("former", "path"), MODULES.items())
def test_a_former_module_is_the_module_itself(
    former: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, former, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{former} is now {path}; .* in 0.3") as warned:
        found = importlib.import_module(former)
    assert found is importlib.import_module(path)
    assert found.__spec__ is not None
    assert found.__spec__.name == path
    assert len(warned) == 1


@pytest.mark.parametrize(("package", "module", "name"), MOVED_NAMES)
def test_a_former_name_of_a_package_is_the_object_itself(package: str, module: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{package}.{name} is now {package}.{module}.{name}; "):
        found = getattr(importlib.import_module(package), name)
    assert found is getattr(importlib.import_module(f"{package}.{module}"), name)


def test_what_was_never_there_is_not_found() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Tusk'"):
        resources.Tusk  # type: ignore[attr-defined]  # noqa: B018 - that is the point
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("hetuflow_core.permission")


@pytest.mark.parametrize(
    "statement",
    [
        "from hetuflow_core.permissions import Grant",
        "from hetuflow_core.resources import Task",
        "import hetuflow_server.services.verifiers",
    ],
)
def test_the_warning_names_the_line_that_imports(statement: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-W", "default", "-c", statement], capture_output=True, text=True, check=True
    ).stderr
    assert shown.startswith("<string>:1: DeprecationWarning: "), shown

"""The code stays laid out by subject: each rule of the layout holds, and is able to fail."""

from __future__ import annotations

import ast
import configparser
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from hetuflow_server.cli.lazy_loading import load

ROOT = Path(__file__).parents[3]
PACKAGES = ("hetuflow_core", "hetuflow_server", "hetuflow_agent", "hetuflow_selftest")
FOLDERS = (*PACKAGES, "tests", "bench", "tools")
_MOST_FILES = 25
_MOST_LINES = 400

# The folders of the former layout by technical layer.
FORMER = (
    *(f"hetuflow_server/{name}" for name in ("services", "store", "api", "loops", "stream")),
    *(f"hetuflow_agent/{name}" for name in ("runner", "gateway_client")),
)
# Files that import modules or run programs by a name in a string. Import rules do not see such imports.
# docs/explanation/architecture.md lists the same files.
IMPORTS_BY_NAME: Mapping[str, str] = {
    "hetuflow_server/cli/lazy_loading.py": "parts of the command line, when they are used",
    "hetuflow_server/identity/verifiers.py": "verifiers of other packages, by entry point",
    "hetuflow_server/placement/rules.py": "placement rules of other packages, by entry point",
    "hetuflow_agent/executors/registry.py": "executors of other packages, by entry point",
    "hetuflow_core/client/__init__.py": "the clients, when they are used",
    "hetuflow_core/client/task.py": "the task functions of users",
    "hetuflow_core/moved_modules.py": "modules by the names they had in earlier releases",
    "hetuflow_selftest/scene/wrong_clock.py": "a program that runs with a wrong clock",
}
# Folders of tests that are not named after a subpackage.
TEST_FOLDERS: Mapping[str, str] = {
    "agent": "hetuflow_agent, with a folder for each of its subpackages where there are many tests",
    "selftest": "hetuflow_selftest",
    "core": "the modules at the top of hetuflow_core",
    "config": "hetuflow_core/runtime/config, and the settings of both programs",
    "bench": "the benchmark",
    "project": "the repository: documentation, layout, packaging",
}

_SQL_FILE = re.compile(r"(\w+_)?(store|transitions)|tables")
_SQL_FOLDERS = {"postgres", "embedded", "schema"}
_SQL_LIBRARIES = {"alembic", "psycopg", "psycopg_pool", "sqlalchemy"}
_SQL = re.compile(
    r"\b(SELECT\s.+\sFROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM|ON CONFLICT|FOR UPDATE|SET LOCAL|TRUNCATE"
    r"|(CREATE|ALTER|DROP) (TABLE|INDEX|FUNCTION|TRIGGER|VIEW|DATABASE))\b",
    re.DOTALL,
)
_WEB_FILE = re.compile(r"(\w+_)?routes")
_WEB_FOLDERS = {"app", "gateway", "http"}
_WEB_LIBRARIES = {"litestar", "starlette", "uvicorn"}
_IMPORTING = {"import_module", "__import__", "entry_points", "run_module", "run_path", "resolve_name"}
_REFERENCE = re.compile(r"hetuflow_\w+(\.\w+)+:\w+")

Check = Callable[[Path], Iterator[str]]


def crowded_folders(root: Path) -> Iterator[str]:
    """A folder with many files side by side is divided into subpackages."""
    for folder, count in Counter(path.parent for path in _files(root, *FOLDERS)).items():
        if count > _MOST_FILES:
            yield f"{_name(root, folder)} contains {count} Python files, more than {_MOST_FILES}"


def repeated_class_names(root: Path) -> Iterator[str]:
    """A name stands for one thing in a package.

    Private classes may share a name: each is used in its own file only, so nobody meets two of them.
    """
    for package in PACKAGES:
        places: dict[str, list[str]] = defaultdict(list)
        for path in _files(root, package):
            for node in _nodes(path):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(_name(root, path))
        for name, paths in places.items():
            if len(paths) > 1:
                yield f"class {name} is defined in {' and '.join(paths)}"


def former_folders(root: Path) -> Iterator[str]:
    """Nothing is added to the former layout."""
    for name in FORMER:
        if any(_files(root, name)):
            yield f"{name} belongs to the former layout"


def long_files(root: Path) -> Iterator[str]:
    for path in _files(root, *PACKAGES):
        count = len(path.read_text(encoding="utf-8").splitlines())
        if count > _MOST_LINES:
            yield f"{_name(root, path)} has {count} lines, more than {_MOST_LINES}"


def incomplete_contracts(root: Path) -> Iterator[str]:
    """Every package has one ordered list of its subpackages and modules, and the list is complete."""
    contracts = _layers(root)
    for package in PACKAGES:
        if package not in contracts:
            yield f"{package} has no import contract with layers"
    for container, (exhaustive, listed) in contracts.items():
        children = set(PACKAGES) if not container else _children(root / container.replace(".", "/"))
        if container and not exhaustive:
            yield f"the contract of {container} is not exhaustive"
        for name in sorted(children ^ listed):
            yield f"the contract of {container or 'all packages'} and the folder differ in {name}"


def misplaced_sql(root: Path) -> Iterator[str]:
    """SQL and its libraries are found by file name: stores, transitions and tables."""
    for path in _files(root, *PACKAGES[:3]):
        if _SQL_FILE.fullmatch(path.stem) or _SQL_FOLDERS & set(path.relative_to(root).parts[1:-1]):
            continue
        for name in sorted(_libraries(path) & _SQL_LIBRARIES):
            yield f"{_name(root, path)} imports {name}"
        for line, text in _texts(path):
            if _SQL.search(text):
                yield f"{_name(root, path)}:{line} contains SQL"


def misplaced_routes(root: Path) -> Iterator[str]:
    """The web framework is used in routes, in the gateway and by `http`, and wired in `app`."""
    for path in _files(root, *PACKAGES[:3]):
        if _WEB_FILE.fullmatch(path.stem) or _WEB_FOLDERS & set(path.relative_to(root).parts[1:2]):
            continue
        for name in sorted(_libraries(path) & _WEB_LIBRARIES):
            yield f"{_name(root, path)} imports {name}"


def imports_by_name(root: Path) -> Iterator[str]:
    for path in _files(root, *PACKAGES):
        name = _name(root, path)
        if name not in IMPORTS_BY_NAME and _imports_by_name(path):
            yield f"{name} imports a module by its name in a string"
        if not name.startswith("hetuflow_server/cli/"):
            for line, text in _texts(path):
                if _REFERENCE.fullmatch(text):
                    yield f"{name}:{line} refers to a module by its name in a string"


def foreign_test_folders(root: Path) -> Iterator[str]:
    """Tests are found under the name of the subject they test."""
    subjects = _children(root / "hetuflow_core") | _children(root / "hetuflow_server") | set(TEST_FOLDERS)
    for kind in ("unit", "integration", "e2e"):
        for path in _files(root, f"tests/{kind}"):
            folder, *below = path.relative_to(root / "tests" / kind).parts[:-1] or ["project"]
            if folder not in subjects or (below and below[0] not in _children(root / f"hetuflow_{folder}")):
                yield f"tests/{kind}/{'/'.join([folder, *below])} is named after no subpackage"


CHECKS = (
    crowded_folders,
    repeated_class_names,
    former_folders,
    long_files,
    incomplete_contracts,
    misplaced_sql,
    misplaced_routes,
    imports_by_name,
    foreign_test_folders,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_layout_is_kept(check: Check) -> None:
    assert sorted(set(check(ROOT))) == []


_CLASS = "class Same: ..."
# Rule → files that break it, and what is found in them.
VIOLATIONS: list[tuple[Check, dict[str, str], str]] = [
    (
        crowded_folders,
        {f"tests/unit/queue/test_{number}.py": "" for number in range(_MOST_FILES + 1)},
        "tests/unit/queue contains 26 Python files, more than 25",
    ),
    (
        repeated_class_names,
        {"hetuflow_core/a.py": _CLASS, "hetuflow_core/flow/b.py": _CLASS, "hetuflow_agent/c.py": _CLASS},
        "class Same is defined in hetuflow_core/a.py and hetuflow_core/flow/b.py",
    ),
    (
        former_folders,
        {"hetuflow_server/services/jobs.py": ""},
        "hetuflow_server/services belongs to the former layout",
    ),
    (long_files, {"hetuflow_agent/a.py": "#\n" * 401}, "hetuflow_agent/a.py has 401 lines, more than 400"),
    (misplaced_sql, {"hetuflow_server/jobs/actions.py": "import psycopg.rows"}, "imports psycopg"),
    (misplaced_sql, {"hetuflow_server/jobs/actions.py": "from sqlalchemy import text"}, "imports sqlalchemy"),
    (
        misplaced_sql,
        {"hetuflow_core/a.py": "Q = f'SELECT {1}, x\\nFROM sched_job'"},
        "hetuflow_core/a.py:1 contains SQL",
    ),
    (misplaced_routes, {"hetuflow_server/jobs/actions.py": "from litestar import get"}, "imports litestar"),
    (
        imports_by_name,
        {"hetuflow_agent/a.py": "import importlib\nimportlib.import_module('x')"},
        "hetuflow_agent/a.py imports a module by its name in a string",
    ),
    (
        imports_by_name,
        {"hetuflow_agent/a.py": "def __getattr__(name): ..."},
        "hetuflow_agent/a.py imports a module by its name in a string",
    ),
    (
        imports_by_name,
        {"hetuflow_agent/a.py": "A = {'x': 'hetuflow_core.ids:new_id'}"},
        "hetuflow_agent/a.py:1 refers to a module by its name in a string",
    ),
    (
        foreign_test_folders,
        {"tests/e2e/services/test_a.py": "", "hetuflow_server/queue/a.py": ""},
        "tests/e2e/services is named after no subpackage",
    ),
    (
        foreign_test_folders,
        {"tests/unit/agent/runner/test_a.py": "", "hetuflow_agent/loops/a.py": ""},
        "tests/unit/agent/runner is named after no subpackage",
    ),
]


@pytest.mark.parametrize(("check", "files", "finding"), VIOLATIONS)
def test_a_violation_is_found(check: Check, files: dict[str, str], finding: str, tmp_path: Path) -> None:
    _write(tmp_path, files)
    (found,) = set(check(tmp_path))
    assert found.endswith(finding)


ALLOWED: list[tuple[Check, dict[str, str]]] = [
    (
        repeated_class_names,
        {"hetuflow_core/a.py": "class _Part: ...", "hetuflow_core/b.py": "class _Part: ..."},
    ),
    (misplaced_sql, {"hetuflow_server/jobs/leases_store.py": "import psycopg\nQ = 'DELETE FROM sched_job'"}),
    (misplaced_sql, {"hetuflow_server/postgres/pool.py": "import psycopg"}),
    (misplaced_sql, {"hetuflow_server/jobs/actions.py": '"""Runs SELECT x FROM y."""'}),
    (misplaced_routes, {"hetuflow_server/jobs/job_routes.py": "from litestar import get"}),
    (imports_by_name, {"hetuflow_server/cli/main.py": "A = {'x': 'hetuflow_core.ids:new_id'}"}),
    (
        foreign_test_folders,
        {
            "tests/unit/agent/loops/test_a.py": "",
            "tests/unit/conftest.py": "",
            "hetuflow_agent/loops/a.py": "",
        },
    ),
]


@pytest.mark.parametrize(("check", "files"), ALLOWED)
def test_what_is_allowed_is_not_found(check: Check, files: dict[str, str], tmp_path: Path) -> None:
    _write(tmp_path, files)
    assert list(check(tmp_path)) == []


CONTRACT = """
[importlinter:contract:core]
type = layers
containers = hetuflow_core
exhaustive = {exhaustive}
layers =
    client
    # The words.
    ids | {last}
"""


@pytest.mark.parametrize(
    ("exhaustive", "last", "finding"),
    [
        ("True", "errors", None),
        ("False", "errors", "the contract of hetuflow_core is not exhaustive"),
        ("True", "flow", "the contract of hetuflow_core and the folder differ in errors"),
    ],
)
def test_an_incomplete_contract_is_found(
    exhaustive: str, last: str, finding: str | None, tmp_path: Path
) -> None:
    _write(tmp_path, {f"hetuflow_core/{name}.py": "" for name in ("client/__init__", "ids", "errors")})
    (tmp_path / ".importlinter").write_text(CONTRACT.format(exhaustive=exhaustive, last=last))
    found = [text for text in incomplete_contracts(tmp_path) if "has no import contract" not in text]
    assert found[:1] == ([finding] if finding else [])


def test_every_check_is_known_to_fail() -> None:
    assert {check for check, _, _ in VIOLATIONS} | {incomplete_contracts} == set(CHECKS)


def test_files_that_import_by_name_are_listed_with_their_reason() -> None:
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    for name, reason in IMPORTS_BY_NAME.items():
        assert _imports_by_name(ROOT / name), f"{name} is listed and imports nothing by name"
        assert f"| `{name}` | {reason} |" in page


def test_references_of_the_command_line_lead_somewhere() -> None:
    references = {
        text
        for path in _files(ROOT, "hetuflow_server/cli")
        for _, text in _texts(path)
        if _REFERENCE.fullmatch(text)
    }
    assert len(references) > 1
    for reference in references:
        assert load(reference) is not None


def _files(root: Path, *folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((root / folder).rglob("*.py"))


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


@functools.cache
def _nodes(path: Path) -> list[ast.AST]:
    """The syntax tree of a file, its root first; several rules look at each file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _children(folder: Path) -> set[str]:
    """The modules and subpackages of a package."""
    if not folder.is_dir():
        return set()
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return modules | {path.name for path in folder.iterdir() if any(path.glob("**/*.py"))}


def _layers(root: Path) -> dict[str, tuple[bool, set[str]]]:
    """Container → whether its contract is exhaustive, and what it lists; "" contains the packages."""
    parser = configparser.ConfigParser()
    parser.read(root / ".importlinter", encoding="utf-8")
    contracts = [parser[name] for name in parser.sections() if parser[name].get("type") == "layers"]
    return {
        contract.get("containers", ""): (
            contract.getboolean("exhaustive", fallback=False),
            set(re.findall(r"\w+", contract["layers"])),
        )
        for contract in contracts
    }


def _libraries(path: Path) -> set[str]:
    names: set[str] = set()
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Texts in the code with their lines, an f-string as a whole; docstrings are not among them."""
    skipped = {id(node.value) for node in _nodes(path) if isinstance(node, ast.Expr)}
    for node in _nodes(path):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            parts = [part.value if isinstance(part, ast.Constant) else "?" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def _imports_by_name(path: Path) -> bool:
    """Whether a module is loaded by its name, or names of the module itself are (`__getattr__`)."""
    module, *nodes = _nodes(path)
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in called}
    functions = {node.name for node in ast.iter_child_nodes(module) if isinstance(node, ast.FunctionDef)}
    return bool(names & _IMPORTING) or "__getattr__" in functions


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

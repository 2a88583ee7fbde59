"""The documentation builds, loads nothing from elsewhere, and its links and promises hold."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[3]
DECISIONS = sorted((ROOT / "docs/decisions").glob("0*.md"))
CHECKLISTS = sorted((ROOT / "docs/checklists").glob("new-*.md"))
# Pages that are read in the source tree rather than in the built site; mkdocs checks the links of the others.
TOP_PAGES = ["README.md", "README.zh.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md"]
_LONGEST_DECISION = 25


@pytest.mark.parametrize(
    "page",
    [
        "docs/reference/commands.md",
        "docs/reference/exit-codes.md",
        "docs/reference/job-file.md",
        "docs/reference/permissions.md",
        "docs/images/packages.svg",
    ],
)
def test_pages_made_from_code_are_up_to_date(page: str) -> None:
    generated = runpy.run_path(str(ROOT / "docs/generate.py"))["generated"]()
    assert (ROOT / page).read_text(encoding="utf-8") == generated[page], "run `python docs/generate.py`"


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    run = _build_site(tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(DECISIONS)
    for page in pages:
        assert not _loaded_from_elsewhere(page.read_text(encoding="utf-8")), page
    assert not list((tmp_path / "site").glob("*.py"))


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("other.md#a-heading", None),
        ("missing.md", "not found"),
        ("other.md#missing", "does not contain an anchor"),
        ("/other.md", "absolute link"),
        ("other", "unrecognized relative link"),
    ],
)
def test_a_broken_link_fails_the_build(tmp_path: Path, link: str, complaint: str | None) -> None:
    """With the settings of the project and the command of the Makefile, on a site of two pages."""
    settings = ["docs_dir: docs", "nav: [index.md, other.md]", "theme: {name: mkdocs}", "plugins: []"]
    (tmp_path / "mkdocs.yml").write_text("\n".join([f"INHERIT: {ROOT}/mkdocs.yml", *settings]))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"[a link]({link})\n")
    (tmp_path / "docs/other.md").write_text("# A heading\n")
    run = _build_site(tmp_path)
    assert (run.returncode == 0) == (complaint is None), run.stderr
    assert complaint is None or complaint in run.stderr


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<img alt="x" src="http://example/x.png">',
    ],
)
def test_what_counts_as_loaded_from_elsewhere(html: str) -> None:
    assert _loaded_from_elsewhere(html)
    assert not _loaded_from_elsewhere(re.sub(r"(https?:)?//[\w.]+/", "assets/", html))


@pytest.mark.parametrize("name", TOP_PAGES)
def test_links_of_top_pages_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(r"\]\(([^)#]+)[^)]*\)|^\[[^\]]+\]: ([^\s#]+)", text, re.MULTILINE)
    targets = [inline or defined for inline, defined in found if "://" not in inline + defined]
    assert [target for target in targets if not (ROOT / name).parent.joinpath(target).exists()] == []
    assert targets or name != "README.md"


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *CHECKLISTS], ids=lambda page: page.name)
def test_paths_that_contributors_are_sent_to_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    spans = re.findall(r"`([^`\s]+)`", text)
    folders = tuple(f"{folder.name}/" for folder in ROOT.iterdir() if folder.is_dir())
    paths = [span for span in spans if span.startswith(folders)]
    files = [span for span in spans if span.endswith(".py") and not span.startswith(folders)]
    # A placeholder such as <subject> stands for any name.
    missing = [path for path in paths if not [*ROOT.glob(re.sub(r"<\w+>|NNNN_name", "*", path))]]
    assert missing + [file for file in files if not [*ROOT.glob(f"hetuflow_*/**/{file}")]] == []
    assert "/" not in "".join(files), "a path begins at the top of the tree"


@pytest.mark.parametrize("name", TOP_PAGES)
def test_make_targets_named_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|\$ )make ([a-z]+)", text))
    assert named <= set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert named >= {"dev", "test"} or name != "README.md"


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_short_and_whole_and_listed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(text.splitlines()) <= _LONGEST_DECISION
    title = re.match(r"# (\d{4}) (.+)\n", text)
    assert title
    assert page.name.startswith(title[1])
    index = (ROOT / "docs/decisions/index.md").read_text(encoding="utf-8")
    assert f"| [{title[1]}]({page.name}) | {title[2]} |" in index


@pytest.mark.parametrize("path", sorted((ROOT / "docs/images").glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_is_well_formed_and_loads_nothing(path: Path) -> None:
    picture = path.read_text(encoding="utf-8")
    root = ET.fromstring(picture)
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert set(re.findall(r"https?://[^\"\s]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert "@font-face" not in picture


def test_the_changelog_has_a_place_for_the_next_release() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased = changelog.split("\n## [Unreleased]\n")[1].split("\n## ")[0]
    groups = re.findall(r"^### (.+)\n\n(?:#### .+\n\n)?- ", unreleased, re.MULTILINE)
    assert groups == [
        group for group in ("Added", "Changed", "Fixed", "Security") if f"### {group}" in unreleased
    ]
    assert groups


def test_ci_runs_the_gate() -> None:
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    steps = [line for line in script.read_text(encoding="utf-8").splitlines() if line.startswith("make ")]
    assert steps == ["make lint", "make test"]


def _build_site(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build a site with the command that `make docs` and `make lint` use."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    command = re.findall(r"^MKDOCS := (.+)$", makefile, re.MULTILINE)[0]
    return subprocess.run(
        ["sh", "-c", command.replace("$(BIN)", str(Path(sys.executable).parent))],
        cwd=folder,
        # A proxy that does not exist proves that the build needs no network.
        env=os.environ | {"https_proxy": "http://127.0.0.1:1"},
        check=False,
        capture_output=True,
        text=True,
    )


def _loaded_from_elsewhere(html: str) -> list[str]:
    """What a browser fetches by itself: scripts, styles, fonts, images; not what a reader may click on."""
    tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", html)
    return [tag for tag in tags if re.search(r"""\b(?:src|href)=["']?(?:https?:)?//""", tag)]

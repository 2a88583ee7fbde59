"""Writes the files that are made from declarations in the code: `python docs/generate.py`.

A test compares what is committed with what this would write.
"""  # noqa: INP001 - a program in the documentation folder, which is no package

from __future__ import annotations

import sys
from pathlib import Path

from hetuflow_agent.settings import AgentSettings
from hetuflow_core.runtime.config_render import reference, template
from hetuflow_server.settings import ServerSettings

ROOT = Path(__file__).resolve().parent.parent


def generated() -> dict[str, str]:
    """Path under the top of the tree → its text."""
    return {
        "app.toml": template([ServerSettings, AgentSettings]),
        "docs/reference/configuration.md": reference(
            {"hetuflow server": ServerSettings, "hetuflow-agent": AgentSettings}
        ),
    }


def main() -> None:
    for name, text in generated().items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{name} is written\n")


if __name__ == "__main__":
    main()

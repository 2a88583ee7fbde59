"""Draw docs/images/terminal.svg from a real session: `python -m tools.terminal_picture`.

Run it in the project's folder while a new development system (`make dev`) is running.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

PICTURE = Path(__file__).resolve().parents[1] / "docs/images/terminal.svg"
WIDTH = 84
# Each command with the text that its output must contain; the flow needs a moment between two steps.
SESSION = [
    ("hetuflow apply -f examples/approval.yaml", "created"),
    ("hetuflow job run release -p version=2.0", "pending"),
    ("hetuflow flow graph release", "waits for approval"),
    ('hetuflow flow approve release approve -m "The build is fine."', "approved"),
    ("hetuflow flow graph release", "ship     succeeded"),
]
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" class="rich-terminal" viewBox="0 0 {width} {height}" role="img">
<title>A terminal session with Hetuflow</title>
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def draw() -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for command, expected in SESSION:
        console.print(Text(f"$ {command}", style="bold green"), soft_wrap=True)
        console.print(Text.from_ansi(_output(command, expected)), soft_wrap=True)
    svg = console.export_svg(title="", theme=DIMMED_MONOKAI, code_format=_SVG, unique_id="terminal")
    PICTURE.write_text(re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE), encoding="utf-8")
    sys.stdout.write(f"{PICTURE} is written\n")


def _output(command: str, expected: str) -> str:
    """Run a command until its output, with colours, contains the expected text."""
    for _ in range(60):
        run = subprocess.run(
            f"{command} --color always", shell=True, capture_output=True, text=True, check=False
        )
        if expected in re.sub(r"\x1b\[[0-9;]*m", "", run.stdout):
            return run.stdout.rstrip("\n")
        if "graph" not in command:
            break
    raise SystemExit(f"{command}: {run.stdout}{run.stderr}")


if __name__ == "__main__":
    draw()

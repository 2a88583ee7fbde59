"""List the phrases to replace in these files and folders, or count them by folder with --count."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.wording.phrases import PHRASES, advice_for
from tests.support.wording.texts import texts_of


def files_below(path: Path) -> Iterator[Path]:
    yield from [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.md")])


def main(arguments: list[str]) -> int:
    counts: Counter[str] = Counter()
    names = [argument for argument in arguments if argument != "--count"]
    for name in names or ["hetuflow_core", "hetuflow_server", "hetuflow_agent", "hetuflow_selftest", "docs"]:
        for file in files_below(Path(name)):
            for text in texts_of(file):
                for match in PHRASES.finditer(text.text):
                    counts["/".join(file.parts[:2])] += 1
                    if "--count" not in arguments:
                        line = text.text.strip()
                        print(f"{file}:{text.line}: {match[0]!r} → {advice_for(match)}: {line[:150]}")
    for folder, count in counts.most_common():
        print(f"{count:6} {folder}", file=sys.stderr)
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

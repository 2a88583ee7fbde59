"""What tasks run: a shell script that writes down when it starts, lives and ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

FILE: Final = "payload.sh"
_WORDS: Final = 3
# /proc/uptime is read by the shell itself: a record costs no process. One printf is one write.
SCRIPT: Final = r"""#!/bin/sh
# payload LINES PAUSE: say so many lines, each so many seconds after the other.
trace="$SELFTEST_TRACES/$HETUFLOW_INSTANCE_ID.$$.jsonl"
note() {
  read -r up _ </proc/uptime
  printf '{"at":%s,"kind":"%s","task":"%s","instance":"%s","pid":%d,"line":%d}\n' \
    "$up" "$1" "$HETUFLOW_TASK_ID" "$HETUFLOW_INSTANCE_ID" $$ "$2" >>"$trace"
}
line=0
trap 'note told "$line"; exit 143' TERM
note start 0
while [ "$line" -lt "$1" ]; do
  line=$((line + 1))
  note line "$line"
  echo "$HETUFLOW_INSTANCE_ID $$ $line"
  [ "$2" = 0 ] || sleep "$2"
done
note end "$line"
"""


def lasts(command: Sequence[str]) -> float:
    """Return how many seconds such a command runs in all; 0 when it is none."""
    if len(command) < _WORDS or not command[-3].endswith(FILE):
        return 0.0
    return int(command[-2]) * float(command[-1])


def write_payload(folder: Path) -> Path:
    file = folder / FILE
    file.write_text(SCRIPT)
    file.chmod(0o755)
    return file

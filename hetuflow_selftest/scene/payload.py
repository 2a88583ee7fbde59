"""What tasks run: a shell script that writes down when it starts, lives and ends."""

from __future__ import annotations

from pathlib import Path
from typing import Final

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


def write_payload(folder: Path) -> Path:
    file = folder / "payload.sh"
    file.write_text(SCRIPT)
    file.chmod(0o755)
    return file

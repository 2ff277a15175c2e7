"""Record the terminal session of ``README.md``.

``python -m tools.recording`` creates the pack of the page in an empty folder, runs the commands below in a shell, and
writes their output between two marks of the page. A test compares the page with a new recording.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["COMMANDS", "recorded", "recording"]

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "README.md"
COMMANDS: Final = (
    "manglecp decide desk refund --intent any --permission support --arg order=A-1 --arg amount=50",
    "manglecp decide desk refund --intent any --permission support --arg order=A-2 --arg amount=250",
    "manglecp call desk refund --intent any --permission support --arg order=A-1 --arg amount=15 --workspace .",
    "cat refunds.txt && manglecp ledger verify",
)
_MARKED: Final = re.compile(r"(<!-- recorded by tools/recording.py -->\n).*?(<!-- end -->)", re.DOTALL)
_FILES: Final = re.compile(r"^mkdir .*?^cat > .*?^EOF$|^cat > .*?^EOF$|^printf [^\n]*$", re.DOTALL | re.MULTILINE)
_PATIENCE: Final = 180.0


def recorded() -> str:
    """Return the output of the commands, each behind its prompt."""
    making = "\n".join(_FILES.findall(PAGE.read_text("utf-8")))
    typed = "\n".join(f"printf '%s\\n' {_quoted('$ ' + command)}\n{command} || true" for command in COMMANDS)
    with tempfile.TemporaryDirectory() as home:
        ran = subprocess.run(
            ["bash", "-O", "expand_aliases", "-c", f"set -e\n{making}\nexec </dev/null\n{typed}\n"],
            cwd=home,
            env={
                "HOME": home,
                "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
                "LANG": os.environ.get("LANG", "C.UTF-8"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            timeout=_PATIENCE,
        )
    return re.sub(r"\n(?=\$ )", "\n\n", ran.stdout)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def recording() -> str:
    """Return the block that the page shows now."""
    found = _MARKED.search(PAGE.read_text("utf-8"))
    assert found is not None
    return found[0]


if __name__ == "__main__":
    block = f"\n```console\n{recorded()}```\n\n"
    PAGE.write_text(_MARKED.sub(lambda found: f"{found[1]}{block}{found[2]}", PAGE.read_text("utf-8")), "utf-8")

"""Write the recording on the first page: the pack of the ten minutes, asked and invoked in a real shell.

``python -m tools.recording`` runs the commands below in an empty folder, and puts what they printed between two marks
of ``README.md``. A test makes the same recording and compares all that does not depend on the moment.
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
SOURCE: Final = ROOT / "docs" / "tutorial" / "ten-minutes.md"
COMMANDS: Final = (
    "cat desk/rules/policy/refunds.mg",
    "manglecp intent desk help --fact 'complaint(\"A-1\")' --why-not pay_back",
    "manglecp intent desk help --fact 'complaint(\"A-1\")' --permission refund --why",
    "alias pay='manglecp call desk pay_back --intent help --fact '\\''complaint(\"A-1\")'\\'' --permission refund'",
    "pay --arg amount=300 --arg order=A-2",
    "pay --arg amount=20",
    "mkdir book && pay --arg amount=20 --workspace book --confirm",
    "cat book/refunds.txt && manglecp ledger verify",
)
_MARKED: Final = re.compile(r"(<!-- recorded by tools/recording.py -->\n).*?(<!-- end -->)", re.DOTALL)
_FILES: Final = re.compile(r"^mkdir .*?^cat > .*?^EOF$|^cat > .*?^EOF$", re.DOTALL | re.MULTILINE)
_PATIENCE: Final = 180.0


def recorded() -> str:
    """What somebody sees who types the commands, one after the other."""
    making = "\n".join(_FILES.findall(SOURCE.read_text("utf-8")))
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
    """What the page shows now."""
    found = _MARKED.search(PAGE.read_text("utf-8"))
    assert found is not None
    return found[0]


if __name__ == "__main__":
    block = f"\n```console\n{recorded()}```\n\n"
    PAGE.write_text(_MARKED.sub(lambda found: f"{found[1]}{block}{found[2]}", PAGE.read_text("utf-8")), "utf-8")

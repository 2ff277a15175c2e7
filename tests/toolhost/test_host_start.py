"""A worker has to answer soon after its start: within six times what a bare interpreter takes."""

import subprocess
import sys
import time
from pathlib import Path

from tests.toolhost.conversation import UNMEASURED

PLAIN = "from manglecp import action\n@action(effects=[])\ndef one(a: int) -> int:\n    return a\n"
REQUEST = b'{"aid":"AID.PLAIN.ONE.v1","input_json":"{\\"a\\":1}"}\n'


def seconds(*arguments: str, stdin: bytes = b"") -> float:
    command = [sys.executable, *arguments]
    start = time.perf_counter()
    subprocess.run(command, input=stdin, capture_output=True, env=UNMEASURED, check=True)
    return time.perf_counter() - start


def test_the_first_answer_comes_soon(tmp_path: Path) -> None:
    plugin = tmp_path / "plain.py"
    plugin.write_text(PLAIN)
    bare = min(seconds("-I", "-S", "-c", "pass") for _ in range(9))
    host = min(seconds("-m", "manglecp.toolhost.host", "--serve", str(plugin), stdin=REQUEST) for _ in range(9))
    assert host < 6 * bare

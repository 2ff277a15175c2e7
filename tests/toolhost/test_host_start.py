"""A worker has to answer soon after its start: within six times what a bare interpreter takes, locked in or not.

The sandbox may add 20 ms, which is two and a half bare interpreters where this was measured; on a machine that does
other things as well, four are allowed here. The benchmark of hosts shows the exact figures. The best of many tries
counts, taken in turn, for the machine may be busy during any of them.
"""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.toolhost.conversation import UNMEASURED
from tests.toolhost.sandbox.confined import require

PLAIN = "from manglecp import action\n@action(effects=[])\ndef one(a: int) -> int:\n    return a\n"
REQUEST = b'{"aid":"AID.PLAIN.ONE.v1","input_json":"{\\"a\\":1}"}\n'

ROUNDS = 60


def seconds(*arguments: str, stdin: bytes = b"") -> float:
    command = [sys.executable, *arguments]
    start = time.perf_counter()
    done = subprocess.run(command, input=stdin, capture_output=True, env=UNMEASURED, check=False)
    took = time.perf_counter() - start
    assert done.returncode == 0, (command, done.returncode, done.stdout, done.stderr)
    return took


def test_the_first_answer_comes_soon(tmp_path: Path) -> None:
    plugin = tmp_path / "plain.py"
    plugin.write_text(PLAIN)
    bare = host = math.inf
    for _ in range(ROUNDS):
        bare = min(bare, seconds("-I", "-S", "-c", "pass"))
        host = min(host, seconds("-m", "manglecp.toolhost.host", "--serve", str(plugin), stdin=REQUEST))
        if host < 6 * bare:
            return
    pytest.fail(f"the first answer takes {host * 1e3:.0f} ms, a bare interpreter {bare * 1e3:.0f} ms")


def test_locking_itself_in_adds_little(tmp_path: Path) -> None:
    require("strict")
    plugin = tmp_path / "plain.py"
    plugin.write_text(PLAIN)
    host = ("-m", "manglecp.toolhost.host", "--serve", str(plugin))
    bare = free = strict = math.inf
    for _ in range(ROUNDS):
        bare = min(bare, seconds("-I", "-S", "-c", "pass"))
        free = min(free, seconds(*host, stdin=REQUEST))
        strict = min(strict, seconds(*host, "--sandbox", "strict", stdin=REQUEST))
        if strict < free + 4 * bare:
            return
    pytest.fail(f"strict takes {strict * 1e3:.0f} ms, none {free * 1e3:.0f} ms, bare {bare * 1e3:.0f} ms")


LOADED = """
import sys
from manglecp import action

@action(effects=[])
def loaded() -> list[str]:
    return sorted({"asyncio", "dataclasses", "inspect", "pathlib", "subprocess", "tempfile"} & set(sys.modules))
"""


def test_a_locked_host_loads_nothing_heavy_either(tmp_path: Path) -> None:
    require("strict")
    plugin = tmp_path / "plain.py"
    plugin.write_text(LOADED)
    done = subprocess.run(
        [sys.executable, "-I", "-m", "manglecp.toolhost.host", "--serve", str(plugin), "--sandbox", "strict"],
        input=b'{"aid":"AID.PLAIN.LOADED.v1"}\n',
        capture_output=True,
        env=UNMEASURED,
        check=True,
    )
    assert json.loads(json.loads(done.stdout)["output_json"]) == []

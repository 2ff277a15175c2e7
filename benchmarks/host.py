"""The start of a host, from its launch to its first result, with and without sandbox: wall time, the best of many.

The variants alternate, so that other load on the machine affects all of them. A figure outside of its budget is marked;
a slow machine does not fail the benchmark.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _table import print_table

PLUGIN = "from manglecp import action\n@action(effects=[])\ndef one(a: int) -> int:\n    return a\n"
REQUEST = b'{"aid":"AID.PLUGIN.ONE.v1","input_json":"{\\"a\\":1}"}\n'
ROUNDS = 40
BARE_TIMES = 6
STRICT_MORE = 20.0


def bare() -> float:
    """Return the milliseconds to start and end an interpreter."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
    return (time.perf_counter() - start) * 1_000


def first_answer(plugin: Path, *options: str) -> float:
    """Return the milliseconds until a host returns the result of one call."""
    start = time.perf_counter()
    command = [sys.executable, "-I", "-m", "manglecp.toolhost.host", "--serve", str(plugin), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(REQUEST)
        host.stdin.flush()
        answer = host.stdout.readline()
        took = (time.perf_counter() - start) * 1_000
        host.stdin.close()
    assert b'"status":"OK"' in answer, answer
    return took


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        plugin, workspace = Path(folder) / "plugin" / "plugin.py", Path(folder) / "workspace"
        plugin.parent.mkdir()
        workspace.mkdir()
        plugin.write_text(PLUGIN)
        sandboxed = ("--sandbox", "strict", "--workspace", str(workspace))
        rounds = [(bare(), first_answer(plugin), first_answer(plugin, *sandboxed)) for _ in range(ROUNDS)]
    nothing, free, strict = (min(times) for times in zip(*rounds, strict=True))
    rows = [
        ("python -I -S -c pass", nothing, None),
        ("first result, sandbox none", free, BARE_TIMES * nothing),
        ("first result, sandbox strict", strict, free + STRICT_MORE),
    ]
    print_table(
        ("measurement", "result", "budget", ""),
        [
            (
                what,
                f"{took:.1f} ms",
                "" if allowed is None else f"{allowed:.1f} ms",
                "MISSED" if allowed is not None and took > allowed else "",
            )
            for what, took, allowed in rows
        ],
    )


if __name__ == "__main__":
    main()

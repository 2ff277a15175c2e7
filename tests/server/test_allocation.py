"""Large messages leave no large process behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

GROWTH = """
import sys, threading
if sys.argv[1] == "kept small":
    from manglecp.server.memory import keep_small
    keep_small()

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def messages():
    kept = []
    for _ in range(6):
        block = bytearray(12 << 20)
        kept.append(bytes(200_000))  # a small one after each large one keeps the heap from shrinking
        del block

before = resident()
for _ in range(2):
    workers = [threading.Thread(target=messages) for _ in range(8)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
print((resident() - before) >> 20)
"""


@pytest.mark.no_cover
def test_what_large_messages_took_goes_back() -> None:
    def megabytes(how: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", GROWTH, how], capture_output=True, text=True, timeout=300, check=True
        )
        return int(done.stdout)

    assert megabytes("kept small") < 16 < megabytes("as it comes")


def test_cycles_are_looked_for_in_what_comes_later_only() -> None:
    code = """
import gc
from manglecp.server.memory import set_apart
loaded = [[number] for number in range(100_000)]
set_apart()
print(gc.get_freeze_count() > 100_000, len(gc.get_objects()) < 1_000)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "True True\n"

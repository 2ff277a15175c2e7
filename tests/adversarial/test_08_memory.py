"""Case 8: what grows ends at a limit before it fills the memory; measured from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.adversarial._memory_bomb import BOMBS

SCRIPT: Final = Path(__file__).with_name("_memory_bomb.py")
SOURCES: Final = str(Path(__file__).parents[2] / "src")
MEGABYTES: Final = 64
"""Over a process that evaluates next to nothing. The limits allow a million parts and as many columns of rows."""


pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc"),
    pytest.mark.no_cover,
]


def run(name: str) -> tuple[str, float]:
    """How a bomb ended, and the most memory its process took."""
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    done = subprocess.run([sys.executable, str(SCRIPT), name], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    end, kilobytes = done.stdout.decode().split("\n")[:2]
    return end, int(kilobytes) / 1024


@pytest.fixture(scope="module")
def nothing() -> float:
    return run("nothing")[1]


@pytest.mark.parametrize("name", [name for name in BOMBS if name != "nothing"])
def test_memory_stays_bounded(name: str, nothing: float) -> None:
    end, megabytes = run(name)
    assert end == BOMBS[name][1]
    assert megabytes - nothing < MEGABYTES

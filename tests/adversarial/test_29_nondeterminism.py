"""Case 29: hash seeds, orders of facts and files, locale and time zone change no byte."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.effort import effort

pytestmark = pytest.mark.no_cover

SCRIPT: Final = Path(__file__).with_name("_deterministic.py")
LANGUAGE: Final = Path(__file__).with_name("_deterministic_language.py")
INTENT: Final = Path(__file__).with_name("_deterministic_intent.py")
ROOT: Final = Path(__file__).parents[2]
ZONES: Final = ("UTC", "Asia/Kathmandu", "America/St_Johns")
LOCALES: Final = ("C", "C.UTF-8", "de_DE.UTF-8", "tr_TR.UTF-8")


def output(hash_seed: int, order: int, script: Path = SCRIPT) -> bytes:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONUTF8": "1",
        "TZ": ZONES[hash_seed % len(ZONES)],
        "LC_ALL": LOCALES[hash_seed % len(LOCALES)],
    }
    run = subprocess.run([sys.executable, str(script), str(order)], env=environment, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


@pytest.fixture(scope="module")
def wanted() -> bytes:
    first = output(0, 0)
    assert first.count(b"\n") > 400
    assert b"error[eval]" in first
    assert b"error[analysis]" in first
    return first


@pytest.mark.parametrize("seed", range(1, 1 + effort(20)))
def test_no_byte_differs(seed: int, wanted: bytes) -> None:
    assert output(seed, seed) == wanted


@pytest.mark.soak
def test_every_conformance_program() -> None:
    """With all counts, and with the text of the error."""
    first = output(1, 1, LANGUAGE).splitlines()
    assert len(first) > 5_000
    assert output(2, 2, LANGUAGE).splitlines() == first


@pytest.mark.req("EVAL-18", "CONF-14")
def test_every_answer_to_an_intent() -> None:
    """Tools, hints, what would unlock a tool and coverage, byte by byte but for durations."""
    first = output(0, 0, INTENT).splitlines()
    assert len(first) == 13
    assert first[-1] == b"1 and 1 answer to many requests"
    for part in (b'"would_unlock":[[{', b'"dormant_details":[{', b'"excluded":[{', b'"tree":{'):
        assert any(part in line for line in first), part
    for seed in range(1, 1 + effort(10)):
        assert output(seed, seed, INTENT).splitlines() == first

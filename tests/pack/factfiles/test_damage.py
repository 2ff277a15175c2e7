"""Damaged files: whatever is in them, the answer is facts or a ParseError that can be shown."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from manglecp.mangle import ParseError
from manglecp.pack.factfiles import FactFile, FileLimits, read_facts
from tests.effort import examples
from tests.pack.factfiles.conftest import PROGRAM
from tests.pack.factfiles.test_reader import CALL, SIMPLE

SOUND = {
    "calls.csv": b'caller,callee_name,line\na,"b, ""c""",1\n"d\ne",f,2\n',
    "state.csv": b"service,level,@start,@end\na,/up,2026-01-01T00:00:00Z,\nb,/down,_,5000\n",
    "nested.csv": b'items,point\n"[1, 2]",{/x : 3}\n',
    "a.jsonl": f'{json.dumps(CALL)}\n{{"pred": "state", "args": ["a", "/up"], "t": {{"at": 5}}}}\n'.encode(),
    "a.mg": b'calls("a", "b", fn:plus(1, 2)). state("a", /up)@[2026-01-01, _].\nnested([1], {/x : 1}).',
    "a.sc": SIMPLE.encode(),
}
ALPHABET = b'",\n\r\\{}[]()/:@._%0123456789abcXY\x00\xff\xc3'
LIMITS = FileLimits(facts=1_000, bytes=100_000, line=1_000)


def _damaged(data: bytes, rnd: random.Random) -> bytes:
    """Some bytes changed, removed, repeated or cut off."""
    out = bytearray(data)
    for _ in range(rnd.randint(1, 4)):
        at = rnd.randrange(len(out) + 1)
        match rnd.randrange(4):
            case 0:
                out[at : at + 1] = bytes([rnd.choice(ALPHABET)])
            case 1:
                del out[at : at + rnd.randint(1, 6)]
            case 2:
                out[at:at] = out[at : at + rnd.randint(1, 9)] or b"\n"
            case _:
                out[at:at] = bytes([rnd.choice(ALPHABET)])
    return bytes(out)


def _read(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        facts = read_facts([FactFile(path)], PROGRAM, limits=LIMITS)
    except ParseError as error:
        shown = error.render().splitlines()
        assert str(path) in shown[0]
        assert all(line.replace("\t", " ").isprintable() for line in shown)
    else:
        PROGRAM.base(facts)


@pytest.mark.parametrize("name", SOUND)
def test_the_files_are_sound_to_begin_with(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(SOUND[name])
    assert read_facts([FactFile(path)], PROGRAM)


@pytest.mark.parametrize("name", SOUND)
@given(seed=st.integers(0, 2**32))
@examples(60)
def test_damage_is_survived(tmp_path_factory: pytest.TempPathFactory, name: str, seed: int) -> None:
    _read(tmp_path_factory.getbasetemp() / name, _damaged(SOUND[name], random.Random(seed)))


@pytest.mark.parametrize("name", [*SOUND, "loose.csv.gz"])
@given(data=st.binary(max_size=60))
def test_any_bytes_are_survived(tmp_path_factory: pytest.TempPathFactory, name: str, data: bytes) -> None:
    _read(tmp_path_factory.getbasetemp() / name, data)

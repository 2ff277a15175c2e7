"""Damaged logs give documents or a LogError, and documents give a verdict or InvalidEvidence. Nothing else."""

from __future__ import annotations

import json
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.adapters import SOURCES, LogError, ingest
from manglecp.harness.judgement import judge
from manglecp.harness.readers import InvalidEvidence
from tests.adapters.checking import LOGS

FILES = sorted(LOGS.iterdir())
VALUES: list[object] = [
    None,
    True,
    0,
    -1,
    1.5,
    1e-9,
    "",
    " ",
    "x",
    "tool_use",
    [],
    [1],
    [[]],
    {},
    {"type": 1},
    {"type": "tool_result"},
]


def survive(data: bytes, source: str) -> None:
    with suppress(LogError):
        for document in ingest(data, source):
            json.dumps(document)
            with suppress(InvalidEvidence):
                judge(document)


@pytest.mark.parametrize("source", SOURCES)
@given(st.binary(max_size=60))
def test_any_bytes(source: str, data: bytes) -> None:
    survive(data, source)


@given(st.sampled_from(FILES), st.sampled_from(SOURCES), st.randoms(use_true_random=False))
def test_bytes_changed_lost_or_swapped(file: Any, source: str, rnd: Any) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(rnd.randint(1, 4)):
        at = rnd.randrange(len(data))
        match rnd.randrange(4):
            case 0:
                data[at] = rnd.randrange(256)
            case 1:
                del data[at : at + rnd.randrange(200)]
            case 2:
                data[at:at] = data[at - 100 : at]
            case _:
                del data[at:]
        if not data:
            break
    survive(bytes(data), source)


@given(st.sampled_from(FILES), st.randoms(use_true_random=False))
def test_members_of_another_kind(file: Any, rnd: Any) -> None:
    """JSON that is well formed, and wrong at a few places."""
    name = file.name
    source = next((source for source in SOURCES if name.startswith(source)), "jsonl")
    out = []
    for line in file.read_bytes().splitlines() if file.suffix != ".json" else [file.read_bytes()]:
        head, body = (b"data: ", line[6:]) if line.startswith(b"data: ") else (b"", line)
        if body[:1] in (b"{", b"[") and body != b"[DONE]" and rnd.random() < 0.3:
            body = json.dumps(mutated(json.loads(body), rnd)).encode()
        out.append(head + body)
    survive(b"\n".join(out), source)


def mutated(value: Any, rnd: Any) -> Any:
    places: list[tuple[Any, Any]] = []
    work = [value]
    for item in work:
        keys = item.keys() if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        for key in keys:
            places.append((item, key))
            work.append(item[key])
    if not places:
        return deepcopy(rnd.choice(VALUES))
    holder, key = rnd.choice(places)
    match rnd.randrange(3):
        case 0:
            holder[key] = deepcopy(rnd.choice(VALUES))
        case 1 if isinstance(holder, list):
            holder.insert(key, deepcopy(holder[key]))
        case _:
            del holder[key]
    return value

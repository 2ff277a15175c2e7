"""Whatever bytes lie in a pack: it is read, or it is a PackError, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from manglecp.pack.diagnostics import PackError
from manglecp.pack.loader import read_pack
from manglecp.pack.model import Pack
from tests.pack.folders import EXTERNALS, SETTINGS, WHOLE, write

SKILL = "---\nname: N\ndescription: \"D\"\nresources:\n  - uri: 'x'\n    type: text/html\n---\nText.\n"
FILES = {name: text.encode() for name, text in {**WHOLE, "skills/greeting.md": SKILL}.items()}
TEXTS = {name: data for name, data in FILES.items() if not name.endswith(".py")}
PIECES = st.one_of(
    st.binary(max_size=8),
    st.sampled_from([b"\0", b"\xff", b"\n", b'"', b"'", b'"""', b"[[", b"]", b"{", b"=", b".", b"---\n", b"- ", b": "]),
    st.sampled_from(sorted({bytes(word) for word in SETTINGS.encode().split()})),
    st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass")),
)


@st.composite
def damaged(draw: st.DrawFn, files: dict[str, bytes]) -> dict[str, bytes]:
    """A pack in which bytes were taken out, put in and copied around."""
    found = dict(files)
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(sorted(found)))
        data = found[name]
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 20)))
        found[name] = data[:start] + draw(PIECES) + data[end:]
    return found


def outcome(folder: Path) -> Pack | PackError:
    try:
        return read_pack(folder)
    except PackError as error:
        return error


def check(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as place:
        found = outcome(write(Path(place) / "pack", files))
    if isinstance(found, Pack):
        assert len(found.digest) == 64
        return
    assert found.diagnostics
    for problem in found.diagnostics:
        assert problem.file in {*files, ""}
        assert problem.line is None or 1 <= problem.line <= files[problem.file].count(b"\n") + 1
    assert str(found).replace("\n", "").replace("\t", "").isprintable()


@given(damaged(TEXTS))
def test_damaged_texts(files: dict[str, bytes]) -> None:
    check(files)


@pytest.mark.process
@settings(max_examples=8)
@given(damaged({"rules/a.mg": b"p(1).\n", "actions.py": FILES["actions.py"], "externals.py": EXTERNALS.encode()}))
def test_damaged_python(files: dict[str, bytes]) -> None:
    check(files)


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_settings(data: bytes) -> None:
    check({"rules/a.mg": b"p(1).\n", "pack.toml": data})


@given(st.text("-: \n'\"#nameuri[x]é\t", max_size=40))
def test_any_front_matter(text: str) -> None:
    check({"rules/a.mg": b"p(1).\n", "skills/a.md": f"---\n{text}\n---\nx".encode()})

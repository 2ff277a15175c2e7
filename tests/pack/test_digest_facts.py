"""Fact files are read after the pack: what is used is what its digest covers, or nothing."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from manglecp.base.diagnostic import Diagnostic, FileLocation
from manglecp.intent import Domain
from manglecp.pack.diagnostics import PackError
from manglecp.pack.loader import read_pack
from tests.pack.folders import problem, read, write

RULES = {"rules/a.mg": "Decl code(X) bound [/string].\n"}
FORMS: dict[str, str | bytes] = {
    "code.csv": "x\nen\n",
    "code.csv.gz": gzip.compress(b"x\nen\n"),
    "code.mg": 'code("en").\n',
    "code.jsonl": '{"pred": "code", "args": ["en"]}\n',
}


def refused(work: Callable[[], object]) -> Diagnostic:
    with pytest.raises(PackError) as caught:
        work()
    (found,) = caught.value.diagnostics
    return found


def test_a_pack_knows_the_hash_of_each(tmp_path: Path) -> None:
    pack = read(tmp_path, {**RULES, "facts/code.csv": "x\nen\n", "facts/more.mg": 'code("de").\n'})
    assert pack.fact_digests == {path: sha256(Path(path).read_bytes()).hexdigest() for path in pack.fact_files}
    assert Domain.load(pack).base.evaluate([], now=0).query("code(X)") == ['code("de")', 'code("en")']


@pytest.mark.parametrize("name", FORMS)
def test_a_file_that_changes_before_it_is_used_is_refused(tmp_path: Path, name: str) -> None:
    pack = read(tmp_path, {**RULES, f"facts/{name}": FORMS[name]})
    assert Domain.load(pack).base.evaluate([], now=0).query("code(X)") == ['code("en")']
    content = Path(pack.fact_files[0]).read_bytes()
    changed = gzip.compress(b"x\nde\n") if name.endswith(".gz") else content.replace(b"en", b"de")
    write(tmp_path, {f"facts/{name}": changed})
    found = refused(lambda: Domain.load(pack))
    message, fix = "the file has changed since the pack was read", "read the pack again"
    assert found == Diagnostic("parse", message, FileLocation(f"facts/{name}"), fix=fix)
    assert Domain.load(read_pack(tmp_path)).base.evaluate([], now=0).query("code(X)") == ['code("de")']


def test_neither_a_link_nor_a_pipe_takes_its_place(tmp_path: Path) -> None:
    write(tmp_path, {"secret": "x\nhunter2\n"})
    pack = read(tmp_path / "pack", {**RULES, "facts/code.csv": "x\nen\n"})
    file = Path(pack.fact_files[0])
    file.unlink()
    file.symlink_to(tmp_path / "secret")
    assert "has changed" in refused(lambda: Domain.load(pack)).message
    file.unlink()
    os.mkfifo(file)
    assert "has changed" in refused(lambda: Domain.load(pack)).message


def test_a_link_within_the_pack_still_does(tmp_path: Path) -> None:
    write(tmp_path, {**RULES, "recorded/table": "x\nen\n"})
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts/code.csv").symlink_to("../recorded/table")
    assert Domain.load(read_pack(tmp_path)).base.evaluate([], now=0).query("code(X)") == ['code("en")']


@pytest.mark.parametrize("name", ["code.csv.gz", "code.csv", "code.mg", "code.jsonl", "code.sc"])
def test_a_damaged_file_is_called_by_its_name_in_the_pack_and_once(tmp_path: Path, name: str) -> None:
    pack = read(tmp_path, {**RULES, f"facts/{name}": b"\xffz"})
    rendered = refused(lambda: Domain.load(pack)).render()
    assert rendered.count(name) == 1
    assert rendered.startswith(f"error[parse]: facts/{name}:")
    assert str(tmp_path) not in rendered


def test_a_file_that_cannot_be_hashed_is_a_problem(tmp_path: Path) -> None:
    write(tmp_path, RULES)
    (tmp_path / "facts").mkdir()
    os.mkfifo(tmp_path / "facts/code.csv")
    assert problem(tmp_path, {}).file == "facts/code.csv"

"""Facts that a pack finds out: passes of a host that is locked in, and what they change."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from manglecp.mangle import Fact, Name, Program, Source
from manglecp.pack import PackError, SandboxPolicy, read_pack
from manglecp.toolhost import passes
from manglecp.toolhost.dispatch.messages import ActionResult
from manglecp.toolhost.generator_hosts import serve_facts
from manglecp.toolhost.passes import FactGenerators, PassError, PassProgress
from tests.pack.folders import write

RULES = """Decl file(Path, Size) bound [/string, /number].
Decl kind(Path, Kind) bound [/string, /name].
Decl edited(Path) temporal bound [/string].
Decl either(A, B) bound [/string, /number] bound [/number, /string].
"""
PARAMS = '[params.root]\nkind = "folder"\n[params.most]\ndefault = "3"\n[limits]\nmax_base_facts = 2000\n'
HEAD = "import os, sys, time\nfrom pathlib import Path\nfrom manglecp import Part, Progress, facts\n"
FILES = """
@facts("file", "kind", "edited")
def scan(root: Path):
    for path in sorted(root.iterdir()):
        if path.suffix == ".part":
            yield Part(path.name, [("file", path.name, len(path.read_text())), ("file", "shared", 0)])
        elif path.suffix == ".time":
            yield {"pred": "edited", "args": [path.name], "t": {"at": "2026-01-31T12:00:00Z"}}
        else:
            yield "file", path.name, len(path.read_text())
            yield "kind", path.name, "/text"
"""
CHANGES = """
seen = {}

@facts("file", changes=True, seconds=60)
def scan(root: Path):
    for path in sorted(root.iterdir()):
        text = path.read_text()
        if seen.get(path.name) != text:
            seen[path.name] = text
            if text == "fail":
                raise ValueError("no such luck")
            if text == "die":
                os._exit(3)
            yield Part(path.name, [("file", path.name, len(text)), ("file", "of process", os.getpid())])
    for name in set(seen) - {path.name for path in root.iterdir()}:
        del seen[name]
        yield Part(name)
"""


@contextmanager
def served(
    folder: Path, source: str, *, begin: bool = True, more: str = "", most: str = "3", **options: Any
) -> Iterator[FactGenerators]:
    root = folder / "root"
    root.mkdir(exist_ok=True)
    write(folder / "pack", {"pack.toml": PARAMS + more, "rules/a.mg": RULES, "facts.py": HEAD + source})
    pack = read_pack(folder / "pack", {"root": str(root), "most": most})
    options.setdefault("cache", folder / "caches")
    with serve_facts(pack, **options) as generated:
        assert generated is not None
        if begin:
            generated.begin(Program.load([Source("a.mg", RULES)]).predicates)
        yield generated


def begin(folder: Path, source: str, **options: Any) -> set[Fact]:
    with served(folder, source, begin=False, **options) as generated:
        return set(generated.begin(Program.load([Source("a.mg", RULES)]).predicates))


def refused(folder: Path, source: str, **options: Any) -> str:
    with pytest.raises(PackError) as caught:
        begin(folder, source, **options)
    (problem,) = caught.value.diagnostics
    assert problem.file == "facts.py"
    return problem.message


def changed(generated: FactGenerators, name: str = "scan") -> tuple[set[Fact], set[Fact]]:
    looked = generated.run_pass(name)
    assert (looked.version == generated.version) == looked.change.empty
    generated.commit(looked)
    assert generated.version == looked.version
    return set(looked.added), set(looked.removed)


def file(name: str, size: int) -> Fact:
    return Fact("file", (name, size))


def test_what_is_given_is_read_as_it_is_declared(tmp_path: Path) -> None:
    write(tmp_path / "root", {"a.txt": "abc", "b.time": "", "c.part": "x"})
    instant = 1_769_860_800_000_000_000
    assert begin(tmp_path, FILES) == {
        file("a.txt", 3),
        Fact("kind", ("a.txt", Name("/text"))),
        Fact("edited", ("b.time",), (instant, instant)),
        file("c.part", 1),
        file("shared", 0),
    }


def test_a_pass_is_compared_with_the_one_before(tmp_path: Path) -> None:
    root = write(tmp_path / "root", {"a.part": "a", "b.part": "b", "c": "1"})
    with served(tmp_path, FILES) as generated:
        assert changed(generated) == (set(), set())
        (root / "a.part").unlink()
        assert changed(generated) == (set(), {file("a.part", 1)})  # the other part still gives what both gave
        (root / "a.part").touch()
        assert changed(generated) == ({file("a.part", 0)}, set())
        (root / "a.part").unlink()
        assert changed(generated) == (set(), {file("a.part", 0)})
        (root / "b.part").unlink()
        (root / "c").write_text("12")
        added, removed = changed(generated)
        assert added == {file("c", 2)}
        assert removed == {file("b.part", 1), file("shared", 0), file("c", 1)}


def test_the_same_facts_have_the_same_version(tmp_path: Path) -> None:
    root = write(tmp_path / "root", {"a": "a", "b": "b"})
    with served(tmp_path, FILES) as generated:
        first = generated.version
        (root / "c").write_text("")
        changed(generated)
        assert generated.version != first
        (root / "c").unlink()
        changed(generated)
        assert generated.version == first


def test_a_process_that_gives_changes_gives_everything_once(tmp_path: Path) -> None:
    root = write(tmp_path / "root", {"a": "a", "b": "b"})
    with served(tmp_path, CHANGES) as generated:
        assert changed(generated) == (set(), set())
        (root / "b").write_text("bb")
        assert changed(generated) == ({file("b", 2)}, {file("b", 1)})
        (root / "a").unlink()
        assert changed(generated) == (set(), {file("a", 1)})


@pytest.mark.parametrize(("text", "about"), [("fail", "ValueError: no such luck"), ("die", "exited with code 3")])
def test_a_pass_that_fails_changes_nothing_and_the_next_process_gives_everything(
    tmp_path: Path, text: str, about: str
) -> None:
    root = write(tmp_path / "root", {"a": "a", "c": "c", "d": "d"})
    with served(tmp_path, CHANGES) as generated:
        version = generated.version
        (root / "a").write_text("changed before it fails")
        (root / "b").write_text(text)
        with pytest.raises(PassError, match=about):
            generated.run_pass("scan")
        assert generated.version == version
        (root / "b").unlink()
        (root / "c").unlink()
        added, removed = changed(generated)
        assert {file("a", 1), file("c", 1)} < removed
        assert {file("a", 23)} < added
        assert {fact.args[0] for fact in added | removed} == {"a", "c", "of process"}  # another one, and d as it was


def test_a_change_that_is_refused_comes_again(tmp_path: Path) -> None:
    root = write(tmp_path / "root", {"a": "a"})
    with served(tmp_path, CHANGES) as generated:
        (root / "b").write_text("b")
        looked = generated.run_pass("scan")
        assert file("b", 1) in looked.added
        generated.discard(looked)
        added, _ = changed(generated)
        assert file("b", 1) in added


@pytest.mark.parametrize(
    ("body", "about"),
    [
        ('yield "other", 1', "it gave a fact of other, which it does not declare"),
        ('yield "file", 1', "it gave a fact of file: Predicate 'file' expects 2 arguments (path, size), got 1"),
        ('yield "file", 1, 2', "it gave a fact of file: argument path of file takes /string"),
        ('yield "file", "a", 1.5', "it gave a fact of file: 1.5 is not a whole number"),
        ('yield "either", "a", "b"', "it gave a fact of either: its values do not fit together"),
        ('yield "file", "a", None', "it gave a fact of file: null stands for any value"),
        ('yield {"pred": "kind", "args": []}', "it gave a fact of kind, which it does not declare"),
        ('yield "file"', "TypeError: a fact is a tuple such as ('file', path, 12), not a str"),
        ('yield "file", Path("a"), 1', "TypeError: the result holds a PosixPath"),
        ('yield "file", "\\udc80", 1', "ValueError: a text in the part '' holds half a character"),
        ('yield "file", "x" * 300_000, 1', "ValueError: a fact of the part '' has more than 262,144 bytes"),
        ('yield Part("")', "TypeError: the name of a part is a text, and not empty"),
        ('for n in iter(int, 1): yield "file", "a", n', "more than 2,000 facts: raise limits.max_base_facts"),
        ("1 / 0; yield", "ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_no_fact_is_refused(tmp_path: Path, body: str, about: str) -> None:
    assert refused(tmp_path, f'@facts("file", "either")\ndef scan():\n    {body}\n').startswith(f"scan: {about}")


@pytest.mark.parametrize("body", ["time.sleep(60); yield", "while True: yield Progress(1)"])
def test_a_pass_that_takes_too_long_is_given_up(tmp_path: Path, body: str) -> None:
    source = f'@facts("file", seconds=0.5)\ndef scan():\n    {body}\n'
    assert refused(tmp_path, source) == "scan: it was not done within 0.5 s"


def test_changes_come_in_parts(tmp_path: Path) -> None:
    source = '@facts("file", changes=True)\ndef scan():\n    yield "file", "a", 1\n'
    assert refused(tmp_path, source).startswith("scan: TypeError: with changes=True, facts are yielded in parts")


def test_too_many_facts_of_several_passes_are_too_many(tmp_path: Path) -> None:
    source = """
known = 0
@facts("file", changes=True)
def scan():
    global known
    known += 1
    yield Part(str(known), [("file", str(known), n) for n in range(1200)])
"""
    with served(tmp_path, source) as generated, pytest.raises(PassError, match="more than 2,000 facts"):
        generated.run_pass("scan")


def test_more_bytes_than_one_answer_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
@facts("file", "kind")
def scan():
    yield Part("large", [("file", f'{n:03}"' * 2_000, n) for n in range(300)])
    for n in range(700):
        yield "kind", "\\\\" * n, "/x"
"""
    found = begin(tmp_path, source)
    assert sum(fact.predicate == "file" for fact in found) == 300
    assert {len(str(fact.args[0])) for fact in found if fact.predicate == "kind"} == set(range(700))
    monkeypatch.setattr(passes, "MAX_BYTES", 1_000_000)
    assert refused(tmp_path, source) == "scan: it gave more than 1,000,000 bytes"


def test_it_says_how_far_it_is(tmp_path: Path) -> None:
    source = """
@facts("file", seconds=60)
def scan():
    for n in range(4):
        yield Progress(n, 4, "files")
        yield "file", "a", n
        time.sleep(0.15)
"""
    told: list[PassProgress] = []
    begin(tmp_path, source, on_progress=told.append)
    assert len(told) > 1
    assert [one.facts for one in told] == sorted(one.facts for one in told)
    assert told[-1].facts == 4
    seen = [one for one in told if one.done is not None]
    assert seen
    assert {(one.generator, one.total, one.what) for one in seen} == {("scan", 4, "files")}


def test_settings_have_the_kind_that_the_parameter_says(tmp_path: Path) -> None:
    source = """
@facts("file")
def scan(most: int, root, cache: Path | None, other: str = "by default"):
    yield "file", f"{most + 1} {type(root).__name__} {cache.is_dir()} {other}", 0
"""
    # a parameter with a default is a setting all the same
    assert refused_by_reading(tmp_path, source) == "scan: it takes other, and the pack has no param of that name"
    assert begin(tmp_path, source.replace(', other: str = "by default"', "").replace("{other}", "")) == {
        file("4 str True ", 0)
    }


def refused_by_reading(folder: Path, source: str) -> str:
    with pytest.raises(PackError) as caught:
        begin(folder, source)
    return caught.value.diagnostics[0].message


# --- what the host may do ------------------------------------------------------------------------------------------


def test_it_reads_its_folder_and_writes_its_cache_and_nothing_else(tmp_path: Path) -> None:
    source = """
def tried(what):
    try:
        what()
    except OSError:
        return 0
    return 1

@facts("file")
def scan(root: Path, cache: Path):
    yield "file", "read", tried(lambda: (root / "a").read_text())
    yield "file", "write", tried(lambda: (root / "b").write_text(""))
    yield "file", "outside", tried(lambda: (root.parent / "secret").read_text())
    yield "file", "cached", tried(lambda: (cache / "b").write_text("x"))
    yield "file", "program", tried(lambda: os.execv("/bin/true", ["true"]))
"""
    write(tmp_path, {"root/a": "a", "secret": "s"})
    found = {fact.args for fact in begin(tmp_path, source)}
    assert found == {("read", 1), ("write", 0), ("outside", 0), ("cached", 1), ("program", 0)}


def test_only_programs_that_are_named_and_allowed_start(tmp_path: Path) -> None:
    source = """
import subprocess

@facts("file", spawn=["true"])
def scan():
    for name in ("true", "false"):
        try:
            yield "file", name, subprocess.run([name]).returncode
        except OSError:
            yield "file", name, -1
"""
    assert begin(tmp_path, source) == {file("true", -1), file("false", -1)}
    assert begin(tmp_path, source, programs=["true", "false"], sandbox=SandboxPolicy(degrade=True)) == {
        file("true", 0),
        file("false", -1),
    }


def test_a_cache_outlives_the_process_and_belongs_to_the_settings(tmp_path: Path) -> None:
    source = """
@facts("file")
def scan(root: Path, most: int, cache: Path | None):
    if cache is None:
        yield "file", "no cache", 0
        return
    kept = cache / "kept"
    kept.write_text((kept.read_text() if kept.exists() else "") + "x")
    yield "file", "passes", len(kept.read_text())
"""
    assert begin(tmp_path, source) == {file("passes", 1)}
    assert begin(tmp_path, source) == {file("passes", 2)}
    assert begin(tmp_path, source + "# other code\n") == {file("passes", 1)}
    assert begin(tmp_path, source, most="4") == {file("passes", 1)}
    assert begin(tmp_path, source) == {file("passes", 3)}
    assert begin(tmp_path, source, cache=False) == {file("no cache", 0)}


def test_the_cache_of_a_user_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = '@facts("file")\ndef scan(cache: Path):\n    yield "file", str(cache), 0\n'
    for variable, folder in (("XDG_CACHE_HOME", "xdg/manglecp"), ("MANGLECP_CACHE_DIR", "own")):
        monkeypatch.setenv(variable, str(tmp_path / folder.removesuffix("/manglecp")))
        (fact,) = begin(tmp_path, source, cache=True)
        assert Path(str(fact.args[0])).is_relative_to(tmp_path / folder / "facts" / "pack")


class Replaced:
    """A host that another process takes the place of after its first answer."""

    def __init__(self) -> None:
        self.asked = 0
        self.ended = 0

    def call(self, aid: str, inputs: Mapping[str, Any], seconds: float) -> Future[Any]:
        assert aid.startswith("AID.")
        assert seconds > 0
        self.asked += 1
        rows = [["file", inputs["pass_id"], self.asked]]
        piece = {"process": str(self.asked), "first": True, "over": self.asked > 1, "parts": [["p", True, rows]]}
        answer: Future[Any] = Future()
        answer.set_result(ActionResult(aid, json.dumps(piece), {}))
        return answer

    def end(self) -> None:
        self.ended += 1

    def close(self) -> None:
        raise NotImplementedError


def test_half_a_pass_of_each_of_two_processes_is_none(tmp_path: Path) -> None:
    write(tmp_path, {"pack.toml": PARAMS, "rules/a.mg": RULES, "facts.py": HEAD + CHANGES, "root/a": ""})
    host = Replaced()
    generated = FactGenerators(read_pack(tmp_path, {"root": str(tmp_path / "root")}), cast(Any, host), None)
    with pytest.raises(PackError, match="scan: its host was replaced in the middle of a pass"):
        generated.begin(Program.load([Source("a.mg", RULES)]).predicates)
    assert (host.asked, host.ended) == (2, 1)


def test_a_pack_without_generators_starts_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"rules/a.mg": RULES})
    with serve_facts(read_pack(tmp_path)) as generated:
        assert generated is None


def test_whoever_looks_when_it_ends_is_told(tmp_path: Path) -> None:
    source = """
begun = False

@facts("file")
def scan(root: Path):
    global begun
    if begun:
        time.sleep(600)
    begun = True
    yield "file", "a", 1
"""
    failed: list[PassError] = []

    def look(generated: FactGenerators) -> None:
        try:
            generated.run_pass("scan")
        except PassError as error:
            failed.append(error)

    with served(tmp_path, source) as generated:
        thread = threading.Thread(target=look, args=[generated])
        thread.start()
        while not generated._pass_lock.locked():
            pass
    thread.join(60)
    assert not thread.is_alive()
    assert len(failed) == 1


# --- when it is asked ----------------------------------------------------------------------------------------------


def test_one_that_fails_is_asked_ever_later_and_does_not_hold_up_the_others(tmp_path: Path) -> None:
    source = """
@facts("file", every=0.5)
def scan(root: Path):
    if (root / "broken").exists():
        raise OSError("broken")
    yield "file", "a", 1

@facts("kind", every=7)
def other():
    yield "kind", "a", "/x"
"""
    with served(tmp_path, source) as generated:
        name, first = generated.next()
        assert name == "scan"
        assert first <= 0.5
        (tmp_path / "root/broken").touch()
        for _ in range(4):
            with pytest.raises(PassError):
                generated.run_pass("scan")
        name, seconds = generated.next()
        assert name == "other"
        assert seconds <= 7
        generated.make_due()
        assert generated.next() == ("other", 0.0)
        assert changed(generated, "other") == (set(), set())
        assert generated.next()[1] > 0.0  # nobody hurries one that fails


def test_a_pack_is_locked_in_less_only_where_that_is_allowed(tmp_path: Path) -> None:
    source = """
@facts("file")
def scan(root: Path, cache: Path):
    (cache / "x").touch()
    try:
        yield "file", (root.parent / "outside").read_text(), 0
    except OSError:
        yield "file", "closed", 0
"""
    write(tmp_path, {"outside": "open"})
    for profile, allowed in (("none", False), ("none", True), ("standard", True)):
        found = begin(
            tmp_path, source, more=f'[sandbox]\nprofile = "{profile}"\n', sandbox=SandboxPolicy(allow_weaker=allowed)
        )
        assert found == {file("open" if allowed else "closed", 0)}

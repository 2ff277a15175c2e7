"""A pack to begin with: it runs as it is, and never takes anybody else's place."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import run

import msgspec
import pytest

from manglecp.intent import Domain, Identity
from manglecp.intent.evaluation import evaluate
from manglecp.invoke import decide_call
from manglecp.mangle import Trust, layout
from manglecp.pack.diagnostics import PackError
from manglecp.pack.loader import read_pack
from manglecp.pack.scaffold import INTENT, write_scaffold
from manglecp.wire.messages import DecidePayload
from tests.intent.packs import request


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.process
def test_it_is_a_small_pack_with_one_of_each(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "notes"
    assert sorted(write_scaffold(folder)) == sorted(contents(folder))
    pack = read_pack(folder)
    assert pack.name == "notes"
    assert sorted(source.trust for source in pack.sources) == [Trust.SCHEMA, Trust.POLICY, Trust.DOMAIN]
    assert [intent.name for intent in pack.settings.intents] == [INTENT]
    assert list(pack.skills) == ["plain_style"]
    assert list(pack.actions) == ["measure_text"]
    assert pack.warnings == ()
    assert sum(content.count(b"\n") for content in contents(folder).values()) <= 70
    assert [layout(source) for source in pack.sources] == [source.text for source in pack.sources]


@pytest.mark.process
def test_its_tool_is_proven_and_its_policy_works(tmp_path: Path) -> None:
    write_scaffold(tmp_path / "notes")
    domain = Domain.load(read_pack(tmp_path / "notes"))
    assert domain.warnings == ()

    def tools(*facts: tuple[str, ...]) -> list[str]:
        return [selected.tool for selected in evaluate(domain, request(INTENT, facts), Identity()).selected]

    assert tools() == tools(("draft", "a", "final")) == ["measure_text"]
    assert tools(("draft", "a", "private")) == []


@pytest.mark.process
@pytest.mark.parametrize("more", ["", 'effect_denied("measure_text", "the desk is closed").'])
def test_its_reasons_are_public(tmp_path: Path, more: str) -> None:
    write_scaffold(tmp_path / "notes")
    (tmp_path / "notes" / "rules" / "policy" / "more.mg").write_text(more)
    fact = {"pred": "draft", "args": ["a", "private"]}
    payload = DecidePayload(tool="measure_text", args={"text": "a"}, facts=[fact])
    decision = decide_call(Domain.load(read_pack(tmp_path / "notes")), payload, Identity(), 0)
    assert decision.verdict == "deny"
    assert "private drafts are not looked at" in decision.public_reasons
    assert ("the desk is closed" in decision.public_reasons) is bool(more)


def test_its_action_works(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    write_scaffold(folder)
    command = [sys.executable, "-I", "-m", "manglecp.toolhost.host", "--run", str(folder / "actions.py")]
    command += ["AID.NOTES.MEASURE_TEXT.v1", "--sandbox", "strict"]
    request = msgspec.json.encode({"inputs": {"text": "One. Two words! Is it?"}})
    answer = msgspec.json.decode(run(command, input=request, capture_output=True, check=True, timeout=120).stdout)
    assert msgspec.json.decode(answer["output_json"]) == {"words": 5, "sentences": 3, "longest": "Two words!"}


@pytest.mark.parametrize("what", ["file", "folder", "full", "link"])
def test_nothing_is_overwritten(tmp_path: Path, what: str) -> None:
    target = tmp_path / "notes"
    match what:
        case "file":
            target.write_text("mine")
        case "folder":
            target.mkdir()
        case "full":
            target.mkdir()
            (target / "mine").write_text("mine")
        case "link":
            target.symlink_to("nowhere")
    before = contents(tmp_path)
    with pytest.raises(PackError, match="exists already"):
        write_scaffold(target)
    assert contents(tmp_path) == before
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("name", ["a b", "-x", "a\nb", "ü", "x" * 65, ".."])
def test_a_name_is_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(PackError, match="is not a valid pack name"):
        write_scaffold(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(PackError, match="cannot be written"):
        write_scaffold(tmp_path / "file" / "notes")

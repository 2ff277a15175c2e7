"""The whole cycle on a real repository: try, test, change, test, take back, undo, commit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manglecp.testing import Pack, Refused, load_pack
from tests.toolhost.sandbox.confined import require
from tests.workspace.governed import PACK, as_it_is, edit, governed
from tests.workspace.repositories import Repository, layered

pytestmark = pytest.mark.no_cover
TAX = "pricing/tax.py"
HARMLESS = edit(TAX, '"""What the state takes', '"""What the state takes away')
HARMFUL = edit(TAX, '"books": 7', '"book": 7')
BROKEN = "tests/test_basket.py::TestBasket::test_total_has_the_tax"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return layered(tmp_path / "repository")


@pytest.fixture
def pack(repository: Repository) -> Iterator[Pack]:
    with governed(repository.root) as pack:
        yield pack


def change(pack: Pack, *edits: dict[str, Any], files: tuple[str, ...] = (TAX,)) -> Any:
    answer = pack.intent("change", facts=[f'to_change("{file}")' for file in files])
    return answer.invoke("safe_change", {"edits": list(edits)}, confirm=True)


def test_a_change_that_breaks_nothing_stays_until_it_is_undone(pack: Pack, repository: Repository) -> None:
    before = (repository.root / TAX).read_bytes()
    run = change(pack, HARMLESS)
    assert b"takes away" in (repository.root / TAX).read_bytes()
    assert (run.result["tests"]["worse"], run.result["files"][0]["path"]) == (False, TAX)
    assert [call.action for call in run.calls] == [
        *("make_patch", "run_tests", "apply_patch", "run_tests", "compare_runs"),
    ]
    assert run.delta.asserts("applied", ..., TAX)
    assert run.suggests("review")
    (applied,) = [one["args"] for one in run.delta.asserted if one["pred"] == "applied"]

    back = pack.intent("undo", facts=[{"pred": "applied", "args": applied}]).invoke("undo_change")
    assert (repository.root / TAX).read_bytes() == before
    assert back.delta.retracts("applied", *applied)
    assert "backup" not in back.result


def test_a_change_that_breaks_a_test_is_taken_back(pack: Pack, repository: Repository) -> None:
    run = change(pack, HARMFUL)
    assert repository.git("status", "--porcelain") == ""
    assert run.result["tests"]["broken"] == [BROKEN]
    assert run.calls[-1].action == "revert_patch"
    assert run.delta.asserts("failing_test", BROKEN)
    assert not [one for one in run.delta.asserted if one["pred"] == "applied"]
    assert run.suggests("diagnose_failure", test=BROKEN)
    assert "taken back" in run.summary


def test_a_change_that_ends_whoever_tests_it_is_taken_back(pack: Pack, repository: Repository) -> None:
    """The tests run beside their host, and could end it: nobody hears how they went, and nobody has to be asked."""
    deadly = edit(TAX, "from pricing.money import Money\n", "import os\n\nos.killpg(0, 9)\n")
    with pytest.raises(Refused, match="run_tests"):
        change(pack, deadly)
    assert repository.git("status", "--porcelain") == ""


def test_tests_that_failed_before_are_no_reason_to_take_it_back(pack: Pack, repository: Repository) -> None:
    (repository.root / TAX).write_text((repository.root / TAX).read_text().replace('"books": 7', '"book": 7'))
    run = change(pack.refresh_facts(), HARMLESS)
    tests = run.result["tests"]
    assert (tests["worse"], tests["broken"], tests["failing"], tests["outcome"]) == (False, [], [BROKEN], "failed")
    assert "takes away" in (repository.root / TAX).read_text()


def test_tests_have_as_long_as_the_settings_say(repository: Repository) -> None:
    conftest = repository.root / "conftest.py"
    conftest.write_text("import time\n\ntime.sleep(600)\n")
    with governed(repository.root, test_seconds="1", test_memory="256") as pack:
        run = change(pack, HARMLESS)
    assert [call.input["memory_mb"] for call in run.calls if call.action == "run_tests"] == [256, 256]
    assert run.result["tests"]["outcome"] == "timeout"
    assert "neither before nor after" in run.summary
    assert "--set test_seconds=N" in run.summary


def test_an_edit_that_mends_says_so(pack: Pack, repository: Repository) -> None:
    (repository.root / TAX).write_text((repository.root / TAX).read_text().replace('"books": 7', '"book": 7'))
    run = change(pack.refresh_facts(), edit(TAX, '"book": 7', '"books": 7'))
    assert run.result["tests"]["mended"] == [BROKEN]


def test_of_several_changes_the_one_that_is_named_is_undone(pack: Pack, repository: Repository) -> None:
    texts = [(repository.root / TAX).read_text()]
    facts = []
    for old, new in (("the state", "a state"), ("a state", "any state")):
        run = change(pack, edit(TAX, f"What {old}", f"What {new}"))
        facts += [{"pred": "applied", "args": one["args"]} for one in run.delta.asserted if one["pred"] == "applied"]
        texts.append((repository.root / TAX).read_text())
    assert "Several runs" in pack.intent("undo", facts=facts).tool("undo_change").instructions
    for number in (1, 0):
        named = facts[number]["args"][0]
        back = pack.intent("undo", facts=facts, params={"run": named}).invoke("undo_change")
        assert (repository.root / TAX).read_text() == texts[number]
        assert [one["args"] for one in back.delta.retracted] == [[named, TAX]]
        facts = facts[:number]


def test_undoing_leaves_later_work_alone(pack: Pack, repository: Repository) -> None:
    run = change(pack, HARMLESS)
    (applied,) = [one["args"] for one in run.delta.asserted if one["pred"] == "applied"]
    later = (repository.root / TAX).read_text() + "\n# by hand\n"
    (repository.root / TAX).write_text(later)
    back = pack.intent("undo", facts=[{"pred": "applied", "args": applied}]).invoke("undo_change")
    assert back.result["files"] == []
    assert "Nothing was put back" in back.summary
    assert "has changed since" in back.summary
    assert not back.delta.retracted
    assert (repository.root / TAX).read_text() == later


def test_several_files_change_together_or_not_at_all(pack: Pack, repository: Repository) -> None:
    new = edit("docs/tax.md", "", "# Taxes\n")
    run = change(pack, new, edit(TAX, "no such text", "x"), files=("docs/tax.md", TAX))
    assert [call.action for call in run.calls] == ["make_patch"]
    why = f"{TAX!r}: the old text does not occur: read those lines again"
    assert run.result["problems"] == [{"path": TAX, "problem": why}]
    assert "Nothing was changed" in run.summary
    assert not run.delta.asserted
    assert repository.git("status", "--porcelain") == ""
    change(pack, new, HARMLESS, files=("docs/tax.md", TAX))
    assert (repository.root / "docs/tax.md").read_text() == "# Taxes\n"


def test_changes_are_committed_to_a_branch_of_their_own(pack: Pack, repository: Repository) -> None:
    change(pack, HARMLESS)
    secret = {"of-mine.conf": "DB_PASSWORD=" + "h7Kq29xWpLz\n"}
    repository.write({"new\nline.py": "NEW = 1\n", "other.py": "OTHER = 1\n", **secret})
    pack.refresh_facts().intent("review", facts=['commit_to("all")']).lacks(
        "commit_changes", because="file with secrets"
    )
    (repository.root / "of-mine.conf").unlink()
    answer = pack.refresh_facts().intent("review", facts=['commit_to("all")'])
    answer.invoke("commit_changes", {"message": "Whatever can be named"}, confirm=True)
    assert repository.git("show", "--name-only", "--format=", "all").split("\n") == ["other.py", TAX]
    repository.write(secret)  # what is not named does not matter
    named = [f'to_commit("{TAX}")', 'to_commit("README.md")']
    answer = pack.refresh_facts().intent("review", facts=['commit_to("tax-words")', *named])
    run = answer.invoke("commit_changes", {"message": "Say it in full"}, confirm=True)
    assert repository.git("log", "-1", "--format=%s", "tax-words") == "Say it in full"
    assert repository.git("rev-parse", "--abbrev-ref", "HEAD") == "main"
    assert repository.git("show", "--name-only", "--format=", "tax-words") == TAX
    assert "Committed" in run.summary


def test_an_undo_outlives_the_process_that_made_the_change(repository: Repository, tmp_path: Path) -> None:
    """By the command line: each command is a process of its own, and only the store is left between them."""
    before = (repository.root / TAX).read_bytes()
    store = ["--json", "--store", str(tmp_path / "store.sqlite3")]

    def manglecp(*command: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "manglecp", *command, *store],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def call(pack: Path, tool: str, intent: str, fact: str, *more: str) -> Any:
        given = ["--set", f"root={repository.root}", "--set", f"python={sys.executable}", "--facts-cache", "none"]
        asked = ["call", str(pack), tool, "--intent", intent, "--fact", fact, *given, "--degrade", "--confirm"]
        return manglecp(*asked, *more)["payload"]

    with as_it_is() as pack:
        told = call(pack, "safe_change", "change", f'to_change("{TAX}")', "--arg", f"edits={json.dumps([HARMLESS])}")
        (stated,) = told["state_delta"]["assert"]
        run, path = stated["args"]
        call(pack, "undo_change", "undo", f'applied("{run}", "{path}")')
        assert (repository.root / TAX).read_bytes() == before
        told = call(pack, "safe_change", "change", f'to_change("{TAX}")', "--arg", f"edits={json.dumps([HARMFUL])}")
        assert "taken back" in told["observability"]["summary"]
        newest = manglecp("runs", "list", "--limit", "1")[0]["run_id"]
        call(pack, "undo_change", "undo", f'applied("{newest}", "{TAX}")')
        assert (repository.root / TAX).read_bytes() == before, "what tests turned down does not come back by undoing"


def test_without_pytest_nothing_is_changed(repository: Repository, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    with governed(repository.root, python=str(tmp_path / "bare/bin/python")) as pack:
        run = change(pack, HARMLESS)
    assert [call.action for call in run.calls] == ["make_patch", "run_tests"]
    assert "has no pytest: install it there, or serve the pack with --set python=PATH" in run.summary
    assert repository.git("status", "--porcelain") == ""


def test_a_patch_that_cannot_be_applied_says_why(repository: Repository) -> None:
    """What the hosts themselves run from is closed to them, also if it lies in the repository that they work on."""
    require("strict")
    own, settings = "tools/pack", {"root": str(repository.root), "python": sys.executable}
    shutil.copytree(PACK, repository.root / own, ignore=shutil.ignore_patterns("__pycache__"))
    with load_pack(repository.root / own, settings, programs=["git", "python"], degrade=True) as pack:
        text = edit(f"{own}/README.md", "# workspace: a repository under rules", "# mine")
        run = change(pack, text, HARMLESS, files=(TAX, f"{own}/README.md"))
    assert [call.action for call in run.calls] == ["make_patch", "run_tests", "apply_patch"]
    assert "Nothing was changed" in run.summary
    assert "Actions cannot write to the folders from which manglecp itself runs" in run.summary
    assert not run.delta.asserted
    assert "takes away" not in (repository.root / TAX).read_text(), "all of it, or nothing"

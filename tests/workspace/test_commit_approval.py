"""An approved commit by the command line, where each command is a process of its own, in a real repository."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.deadlines import patience
from tests.toolhost.sandbox.confined import require
from tests.workspace.governed import as_it_is, edit
from tests.workspace.repositories import layered
from tests.workspace.repository import Repository

pytestmark = pytest.mark.no_cover

TAX = "pricing/tax.py"
GOOD = '"boats": 19, "other": 19'
BACKDOOR = '"boats": 19, "other": 0'
Manglecp = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    require("strict")
    repository = layered(tmp_path / "repository")
    source = (repository.root / TAX).read_text()
    (repository.root / TAX).write_text(source.replace('"other": 19', GOOD))
    return repository


@pytest.fixture
def manglecp(repository: Repository, tmp_path: Path) -> Iterator[Manglecp]:
    with as_it_is() as pack:
        given = ["--set", f"root={repository.root}", "--set", f"python={sys.executable}", "--set", "area=pricing/"]

        def run(verb: str, *words: str) -> subprocess.CompletedProcess[str]:
            first = [verb, str(pack)] if verb == "call" else [verb]
            options = [*given, "--degrade", "--facts-cache", "none"] if verb == "call" else []
            command = [sys.executable, "-m", "manglecp", *first, *words, *options]
            command += ["--store", str(tmp_path / "store.sqlite3")]
            return subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)

        yield run


COMMIT = ("commit_changes", "--intent", "review", "--fact", 'commit_to("work")', "--arg", "message=Tax boats")


def test_the_approver_reads_the_diff_and_only_that_is_committed(repository: Repository, manglecp: Manglecp) -> None:
    requested = manglecp("call", *COMMIT)
    assert requested.returncode == 1
    (approval,) = set(re.findall(r"ap-\w+", requested.stderr))
    shown = manglecp("approvals", "show", approval).stdout
    assert f"  | --- a/{TAX}\n  | +++ b/{TAX}\n" in shown
    assert f'  | +RATES = {{"food": 7, "books": 7, {GOOD}}}\n' in shown
    blob = repository.git("hash-object", TAX)
    assert f'  blobs: {{"{TAX}":"100644 {blob}"}}\n' in shown
    assert f'  parent: "{repository.commits[-1]}"\n' in shown
    assert "parent = parent of its preview, blobs = blobs of its preview" in shown
    assert manglecp("approvals", "approve", approval, "--yes").returncode == 0

    approved = (repository.root / TAX).read_bytes()
    edits = json.dumps([edit(TAX, GOOD, BACKDOOR)])  # another tool, which needs no approval in the area
    asked = ("safe_change", "--intent", "change", "--fact", f'to_change("{TAX}")', "--arg", f"edits={edits}")
    assert f"Changed {TAX}." in manglecp("call", *asked).stdout
    refused = manglecp("call", *COMMIT, "--approval", approval, "--json")
    error = json.loads(refused.stdout)["payload"]
    assert (error["code"], error["details"]["reason"]) == ("confirmation_invalid", "subject")
    assert repository.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"

    repository.write({TAX: approved})
    done = manglecp("call", *COMMIT, "--approval", approval)
    assert done.returncode == 0, done.stderr
    assert repository.git("rev-parse", f"work:{TAX}", "work^") == f"{blob}\n{repository.commits[-1]}"


def test_a_diff_that_no_approver_can_read_whole_is_not_requested(repository: Repository, manglecp: Manglecp) -> None:
    repository.write({"docs/long.md": "a line of text that an approver has to read\n" * 5_000})
    refused = manglecp("call", *COMMIT)
    assert "error[execution_failed]: The preview for the approver failed: preview_commit" in refused.stderr
    assert "the diff has more than 150,000 characters" in refused.stderr
    assert "No request is pending." in manglecp("approvals", "list").stdout
    assert repository.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"

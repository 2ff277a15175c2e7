"""Case 14: files that change between the approval of a commit and the commit."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from manglecp.client import Client, ServerError
from tests.deadlines import patience
from tests.server.test_serve import process
from tests.toolhost.sandbox.confined import require
from tests.workspace.acting import Refusal, Served, serving
from tests.workspace.governed import as_it_is, edit
from tests.workspace.repositories import layered
from tests.workspace.repository import Repository

pytestmark = pytest.mark.no_cover

TAX = "pricing/tax.py"
GOOD = '"boats": 19, "other": 19'
BACKDOOR = '"boats": 19, "other": 0'
MESSAGE = {"message": "Tax boats"}
REVIEW = [{"pred": "commit_to", "args": ["work"]}, {"pred": "to_commit", "args": [TAX]}]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    require("strict")
    repository = layered(tmp_path / "repository")
    source = (repository.root / TAX).read_text()
    (repository.root / TAX).write_text(source.replace('"other": 19', GOOD))
    return repository


def manglecp(*words: str, token: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "manglecp", *words],
        env={**os.environ, "MANGLECP_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextmanager
def served(root: Path, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the address of a server for this repository, the token of an agent and that of an approver."""
    tokens = ["--file", str(folder / "tokens.toml")]
    agent = manglecp("token", "new", "mallory", *tokens)
    approver = manglecp("token", "new", "ann", "--approver", *tokens)
    settings = [f"root={root}", f"python={sys.executable}", "area=pricing/"]
    with as_it_is() as pack:
        options = [word for setting in settings for word in ("--set", setting)]
        options += ["--http", "127.0.0.1:0", "--tokens", tokens[1], "--store", str(folder / "store.sqlite3")]
        with process(folder, "serve", str(pack), *options, "--degrade", "--facts-cache", "none") as server:
            yield server.url(), agent, approver


def test_an_approved_commit_is_not_spent_on_other_content(repository: Repository, tmp_path: Path) -> None:
    """The approver reads the diff and approves; the agent changes the file with a tool that needs no approval."""

    async def attack(url: str, token: str, approver: str) -> None:
        async with Client(url, token=token) as agent:
            commit = (await agent.evaluate("review", facts=REVIEW))["commit_changes"]
            forged = await post_invocation(url, token, commit.macro_id, {**MESSAGE, "blobs": {}})
            assert forged["code"] == "schema_validation_failed"
            approval = await requested(agent, commit)
            view = json.loads(await approvals(url, approver, "show", approval, "--json"))
            assert GOOD in view["text"]
            await approvals(url, approver, "approve", approval, "--yes")
            approved = (repository.root / TAX).read_bytes()
            change = (await agent.evaluate("change", facts=[{"pred": "to_change", "args": [TAX]}]))["safe_change"]
            await agent.invoke(change, {"edits": [edit(TAX, GOOD, BACKDOOR)]})
            assert BACKDOOR in (repository.root / TAX).read_text(), "the change itself needs no approval"
            with pytest.raises(ServerError) as refused:
                await agent.invoke(commit, MESSAGE, approval=approval)
            assert (refused.value.code, refused.value.details["reason"]) == ("confirmation_invalid", "subject")
            assert repository.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"
            assert await requested(agent, commit) != approval, "another content is another request"
            repository.write({TAX: approved})
            await agent.invoke(commit, MESSAGE, approval=approval)
        assert repository.git("rev-parse", f"work:{TAX}") == repository.git("hash-object", TAX)

    with served(repository.root, tmp_path) as (url, token, approver):
        asyncio.run(attack(url, token, approver))


async def post_invocation(url: str, token: str, macro_id: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Send an invocation whose arguments the client would refuse; return the payload of the response."""
    payload = {"macro_id": macro_id, "args": args}
    message = {"manglecp": "2026-02-draft", "type": "invoke_request", "id": "forged", "payload": payload}
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as http:
        response: dict[str, Any] = (await http.post("/invoke", json=message)).json()["payload"]
    return response


async def requested(agent: Client, commit: Any) -> str:
    with pytest.raises(ServerError) as required:
        await agent.invoke(commit, MESSAGE)
    assert required.value.approval is not None, required.value
    return required.value.approval


async def approvals(url: str, approver: str, verb: str, *words: str) -> str:
    return await asyncio.to_thread(manglecp, "approvals", verb, *words, "--server", url, token=approver)


def test_a_change_after_the_last_preview_is_refused_by_the_commit(repository: Repository, tmp_path: Path) -> None:
    """The gate compares previews; between its last one and the commit only the action itself can notice a change."""

    async def work(served: Served) -> None:
        commit = {"paths": [TAX], "message": "Tax boats", "branch": "work"}
        shown = await served.call("preview_commit", paths=[TAX], branch="work")
        approved = {"parent": shown["parent"], "blobs": shown["blobs"]}
        good = (repository.root / TAX).read_text()
        repository.write({TAX: good.replace(GOOD, BACKDOOR)})
        with pytest.raises(Refusal, match=f"'{TAX}' has changed since the approval"):
            await served.call("commit", **commit, **approved)
        assert repository.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"
        repository.write({TAX: good})
        done = await served.call("commit", **commit, **approved)
        assert repository.git("rev-parse", "work") == done["commit"]

    serving(repository.root, work, folder=tmp_path)

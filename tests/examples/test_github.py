"""The github pack behind ``manglecp serve``, in the strict sandbox, against a server in the shape of GitHub's API."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from manglecp.client import Client, ServerError
from tests.examples.github_server import REPOSITORY, GitHubServer, github_server
from tests.server.desk import PATIENCE
from tests.server.test_serve import Process, process
from tests.toolhost.sandbox.confined import require

pytestmark = pytest.mark.no_cover
PACK = Path(__file__).parents[2] / "examples" / "github"
TOKEN = "ghp_canary0123456789"
PEOPLE = {"ann": ["maintain"], "bob": [], "kim": ["approve"]}


class Desk:
    """A copy of the pack, and a server of it."""

    def __init__(self, folder: Path, github: GitHubServer, stale_after: str) -> None:
        require("strict")
        self.folder, self.github = folder, github
        self.pack = folder / "github"
        shutil.copytree(PACK, self.pack)
        settings = (self.pack / "pack.toml").read_text()
        settings = settings.replace('every = "30s"', 'every = "1s"').replace('"5m"', f'"{stale_after}"')
        (self.pack / "pack.toml").write_text(settings)
        shutil.copy(github.ca, self.pack / "ca.pem")
        self.secret = folder / "token"
        self.secret.write_text(TOKEN)
        (folder / "server.toml").write_text(f'[secrets.GITHUB_TOKEN]\nfile = "{self.secret}"\n')
        tokens = folder / "tokens.toml"
        tokens.touch(0o600)
        tokens.write_text(
            "".join(
                f'[[token]]\nsha256 = "{sha256(name.encode()).hexdigest()}"\nidentity = "{name}"\n'
                f"permissions = {json.dumps(permissions)}\n"
                for name, permissions in PEOPLE.items()
            )
        )

    @contextmanager
    def serving(self) -> Iterator[Process]:
        params = {"repository": REPOSITORY, "api": self.github.api, "ca": "ca.pem"}
        words = [word for name, value in params.items() for word in ("--set", f"{name}={value}")]
        words += ["--http", "127.0.0.1:0", "--store", str(self.folder / "store.db")]
        words += ["--config", str(self.folder / "server.toml"), "--tokens", str(self.folder / "tokens.toml")]
        with process(self.folder, "serve", str(self.pack), *words) as p:
            self.url = p.url()
            self.process = p
            yield p

    def client(self, name: str, **options: Any) -> Client:
        return Client(self.url, token=name, **options)

    @asynccontextmanager
    async def opened(self, name: str, **options: Any) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
        async with self.client(name, **options) as client:

            async def call(tool: str, **args: Any) -> Any:
                outcome = await client.invoke((await client.evaluate("triage"))[tool], args)
                return (outcome.result or {}).get("value", outcome.result)

            yield call

    def written(self) -> bytes:
        """Everything that the server has written: its log and its store."""
        files = [self.folder / "stderr", *self.folder.glob("store.db*")]
        return b"".join(file.read_bytes() for file in files)


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHubServer]:
    with github_server(tmp_path, TOKEN) as server:
        for number in range(100, 250):  # more than a page
            server.add(number, f"Issue {number}")
        server.add(1, "It crashes", "bug", body="On start")
        server.add(2, "Anybody can log in", "security")
        server.add(3, "Do not crash", body="Fixes #1", pull=True)
        server.add(4, "It was closed")
        server.issues[4]["state"] = "closed"
        yield server


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await check():
            await asyncio.sleep(0.05)


async def test_rules_read_the_live_state_and_an_approver_sees_the_issue(tmp_path: Path, github: GitHubServer) -> None:
    desk = Desk(tmp_path, github, "5m")
    shown: list[str] = []
    refusals: list[str | None] = []

    async def approve(pending: Any) -> bool:
        async with desk.client("kim") as kim:
            request = await kim.approval(pending.approval)
            shown.append(str(request.text))
            await kim.approve(pending.approval)
            refusals.append(pending.refusal and pending.refusal.code)
            if pending.args["number"] == 101 and not pending.refusal:
                github.comment(101, "eve", "No longer")
        return True

    with desk.serving():
        async with desk.opened("ann", on_confirm=approve) as call, desk.client("ann") as ann:
            # reading
            listed = await call("list_issues")
            assert (len(listed), listed[-1]) == (152, {"number": 1, "title": "It crashes", "labels": ["bug"]})
            assert (await call("read_issue", number=1))["body"] == "On start"
            with pytest.raises(ServerError, match="GitHub responded with 404: Not Found"):
                await call("read_issue", number=999)
            # what the rules deny, with the reason
            for tool, args, reason in [
                (
                    "close_issue",
                    {"number": 1, "reason": "completed"},
                    r"pull request 3 \(Do not crash\) will close issue 1",
                ),
                ("close_issue", {"number": 2, "reason": "completed"}, "issue 2 has the label security"),
                ("comment", {"number": 2, "text": "x"}, "issue 2 has the label security"),
                ("comment", {"number": 4, "text": "x"}, "there is no open issue 4"),
                ("comment", {"number": 3, "text": "x"}, "there is no open issue 3"),
                ("label_issue", {"number": 1, "labels": ["bug", "urgent"]}, "the repository has no label urgent"),
            ]:
                with pytest.raises(ServerError, match=reason):
                    await call(tool, **args)
            assert github.changes == []
            # a comment needs an approver, who reads the issue as it is now
            github.comment(1, "eve", "Which version?")
            assert await call("comment", number=1, text="Since 2.0") == f"https://github.test/{REPOSITORY}/issues/1#1"
            (text,) = shown
            assert "Which version?" in text
            assert "Since 2.0" in text
            assert [row["body"] for row in github.comments[1]] == ["Which version?", "Since 2.0"]
            # labels need none
            assert await call("label_issue", number=100, labels=["question"]) == ["question"]
            assert len(shown) == 1
            # an approval does not hold if the issue has changed since
            await call("comment", number=101, text="Still there?")
            assert refusals == [None, None, "confirmation_invalid"]
            assert ["No longer" in text for text in shown] == [False, False, True]

            # the pull request is merged, and a label is added: the next pass sees both
            async def verdict(tool: str, **args: Any) -> bool:
                return (await ann.decide(tool, args)).verdict != "deny"

            github.issues[3]["state"] = "closed"
            github.labels.append("urgent")
            await until(lambda: verdict("close_issue", number=1, reason="completed"))
            await until(lambda: verdict("label_issue", number=1, labels=["urgent"]))
            assert await call("close_issue", number=1, reason="completed") == "closed"
            assert (github.issues[1]["state"], github.issues[1]["state_reason"]) == ("closed", "completed")
        async with desk.client("bob") as bob:
            assert {tool.name for tool in (await bob.evaluate("triage")).tools} == {"list_issues", "read_issue"}
        assert desk.process.end() == 0
    assert TOKEN.encode() not in desk.written() + "".join(shown).encode()


async def test_an_outage_makes_facts_stale_and_denies_the_tools_that_change_something(
    tmp_path: Path, github: GitHubServer
) -> None:
    desk = Desk(tmp_path, github, "3s")
    with desk.serving():
        async with desk.opened("ann") as call, desk.client("ann") as ann:

            async def label() -> Any:
                return await ann.decide("label_issue", {"number": 100, "labels": ["bug"]})

            async def allowed() -> bool:
                return bool((await label()).verdict == "allow")

            async def denied() -> bool:
                return not await allowed()

            async def fails(message: str) -> None:
                with pytest.raises(ServerError, match=message):
                    await call("read_issue", number=1)

            await until(allowed)
            github.failure = 503, {}, "Service Unavailable"
            await fails("GitHub responded with 503: Service Unavailable")
            await until(denied)
            (reason,) = (await label()).reasons
            assert reason.startswith("the facts of repository_state are")
            tools = {tool.name for tool in (await ann.evaluate("triage")).tools}
            assert tools == {"list_issues", "read_issue"}, "they read no facts"
            github.failure = 403, {"x-ratelimit-remaining": "0"}, "API rate limit exceeded"
            await fails("The rate limit of GitHub is used up; try again later")
            github.failure = None
            await until(allowed)
            # a token that GitHub no longer accepts, and its rotation
            github.token = "ghp_rotated0123456789"
            await fails("GitHub responded with 401: Bad credentials")
            desk.secret.write_text(github.token)
            assert (await call("read_issue", number=1))["title"] == "It crashes"
        assert desk.process.end() == 0
    for token in (TOKEN, github.token):
        assert token.encode() not in desk.written()

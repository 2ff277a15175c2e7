"""A server as a process, with its file of tokens: approvals, withdrawn rights, and dates of the client."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from manglecp.client import Client, ServerError
from manglecp.invoke import OPERATOR, ApprovalService
from manglecp.store import open_store
from tests.server.desk import PATIENCE, approvals, intent, invoke
from tests.server.lines import WAYS, Line, Way, line
from tests.server.test_serve import MANIFEST, Process, process

pytestmark = pytest.mark.no_cover

ACTIONS: Final = '''
import os, time
from manglecp import action


@action(effects=["none"], idempotent=True, timeout=300)
def look(case: str, gate: str = "") -> dict:
    """Wait for the gate."""
    open(f"looking.{case}", "w").close()
    while gate and not os.path.exists(gate):
        time.sleep(0.01)
    return {"case": case}


@action(effects=["filesystem"])
def note(case: str) -> dict:
    """Write a line."""
    with open("effects", "a") as file:
        file.write(f"{case}\\n")
    return {"case": case}


@action(effects=["payments"])
def strike(case: str) -> dict:
    """Write a line, too."""
    return note(case)
'''
NOW: Final = datetime.now(UTC).replace(microsecond=0)
DAYS: Final = timedelta(days=1)
PAST: Final = (NOW - 10 * DAYS).isoformat().replace("+00:00", "Z")


def _span(begin: datetime, end: datetime) -> str:
    return f"[{begin.isoformat().replace('+00:00', 'Z')}, {end.isoformat().replace('+00:00', 'Z')}]"


RULES: Final = """
macro("asked", "Writes, if a person agrees."). macro_step("asked", 1, "note"). needs_confirmation("asked").
macro("refund", "Looks, then writes."). macro_step("refund", 1, "look"). macro_step("refund", 2, "note").
macro("frozen_tool", "Writes."). macro_step("frozen_tool", 1, "note").
macro("closed_tool", "Writes."). macro_step("closed_tool", 1, "note").
macro("struck", "Strikes."). macro_step("struck", 1, "strike").
macro("doubted", "Writes."). macro_step("doubted", 1, "note").
macro("granted", "Writes."). macro_step("granted", 1, "note").
mandatory(Tool) :- intent("go"), macro(Tool, _).
"""
POLICY: Final = f"""
Decl freeze() temporal.
freeze()@{_span(NOW - DAYS, NOW + DAYS)}.
Decl on_call(Who) temporal bound [/string].
on_call("ann")@{_span(NOW - 12 * DAYS, NOW - 8 * DAYS)}.
Decl is_frozen(). is_frozen() :- freeze()@[now].
Decl free(Tool) bound [/string]. free("asked"). free("frozen_tool"). free("struck"). free("doubted").
permitted(Tool) :- free(Tool).
permitted("refund") :- client_permission("refund").
permitted("closed_tool") :- !is_frozen().
permitted("granted") :- client(Who), on_call(Who)@[now].
prohibited("frozen_tool", "freeze") :- is_frozen().
effect_denied("strike", "freeze") :- is_frozen().
needs_confirmation("doubted") :- is_frozen().
"""
PEOPLE: Final[dict[str, tuple[str, ...]]] = {
    "ann": ("refund",),
    "bob": (),
    "eve": ("approve",),
}


@dataclass
class Place:
    """A pack, a workspace, a store and a file of tokens; ``serving`` starts a server of them."""

    folder: Path
    people: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(PEOPLE))

    def __post_init__(self) -> None:
        pack = self.folder / "pack"
        (self.folder / "work").mkdir()
        for name, text in (("domain/tools", RULES), ("policy/rights", POLICY)):
            (pack / "rules" / name).parent.mkdir(parents=True)
            (pack / "rules" / f"{name}.mg").write_text(text)
        (pack / "actions.py").write_text(ACTIONS)
        (pack / "pack.toml").write_text(
            '[pack]\nname = "rights"\npermissions = ["refund"]\n[[intents]]\nname = "go"\ndescription = "Go"\n'
        )
        self.write_tokens()

    def write_tokens(self, **changes: tuple[str, ...]) -> None:
        self.people.update(changes)
        text = "\n".join(
            f'[[token]]\nsha256 = "{hashlib.sha256(f"token-{name}".encode()).hexdigest()}"\nidentity = "{name}"\n'
            f"permissions = {json.dumps(permissions)}\n"
            for name, permissions in self.people.items()
        )
        new = self.folder / "tokens.new"
        new.touch(0o600)
        new.write_text(text)
        new.replace(self.folder / "tokens.toml")

    @property
    def store(self) -> str:
        return str(self.folder / "store.db")

    @contextmanager
    def serving(self, *how: str) -> Iterator[Process]:
        common = ("--store", self.store, "--workspace", str(self.folder / "work"), "--degrade")
        how = how or ("--http", "127.0.0.1:0", "--tokens", str(self.folder / "tokens.toml"))
        with process(self.folder, "serve", str(self.folder / "pack"), *common, *how) as p:
            yield p

    def effects(self) -> list[str]:
        file = self.folder / "work" / "effects"
        return file.read_text().splitlines() if file.exists() else []

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not reached():
                await asyncio.sleep(0.02)


@dataclass
class Lines:
    ann: Line
    bob: Line
    eve: Line


@asynccontextmanager
async def lines(url: str, way: Way) -> AsyncIterator[Lines]:
    async with (
        line(url, way, "token-ann") as ann,
        line(url, way, "token-bob") as bob,
        line(url, way, "token-eve") as eve,
    ):
        yield Lines(ann, bob, eve)


def code(answer: dict[str, Any]) -> str | None:
    found: str | None = answer["payload"].get("code") if answer["type"] == "error" else None
    return found


async def requested(asking: Line, tool: str, case: str) -> str:
    answer = await asking.ask(invoke("r", tool, {"case": case}))
    assert code(answer) == "confirmation_required", answer
    return str(answer["payload"]["details"]["challenge"]["approval"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def server(place: Place) -> Iterator[str]:
    """For tests that leave the rights and the rules as they are."""
    with place.serving() as p:
        yield p.url()


_cases = itertools.count()


@pytest.fixture
def case() -> str:
    return f"case-{next(_cases)}"


# --- approvals -------------------------------------------------------------------------------------------------------


@pytest.mark.req("INVK-09", "INVK-10", "SEC-22")
@pytest.mark.parametrize("way", WAYS)
async def test_from_the_request_to_the_effect(place: Place, server: str, way: Way, case: str) -> None:
    async with lines(server, way) as people:
        tool = (await people.ann.tools())["asked"]
        approval = await requested(people.ann, tool, case)
        shown = await people.eve.ask(approvals("s", "show", approval))
        (view,) = shown["payload"]["approvals"]
        assert (view["requester"], view["tool"], view["state"]) == ("ann", "asked", "pending")
        assert f'1. note(case = "{case}")' in view["text"]
        listed = await people.eve.ask(approvals("l", "list"))
        assert [("text" in one) for one in listed["payload"]["approvals"] if one["id"] == approval] == [False]
        await people.eve.ask(approvals("a", "approve", approval))
        assert place.effects().count(case) == 0
        done = await people.ann.ask(invoke("i", tool, {"case": case}, confirmation_token=approval))
        assert done["type"] == "invoke_response"
        again = await people.ann.ask(invoke("i", tool, {"case": case}, confirmation_token=approval))
        assert again["payload"]["details"]["reason"] == "used"
        (view,) = (await people.eve.ask(approvals("s", "show", approval)))["payload"]["approvals"]
        assert (view["state"], view["approver"], view["run"][:2]) == ("used", "eve", "r-")
    assert place.effects().count(case) == 1


@pytest.mark.req("SEC-28")
@pytest.mark.parametrize("way", WAYS)
async def test_an_agents_credential_sees_and_decides_nothing(place: Place, server: str, way: Way, case: str) -> None:
    async with lines(server, way) as people:
        tool = (await people.ann.tools())["asked"]
        approval = await requested(people.ann, tool, case)
        for asking in (people.ann, people.bob):
            for operation in ("list", "show", "approve", "deny"):
                answer = await asking.ask(approvals("y", operation, approval))
                assert (code(answer), case in json.dumps(answer)) == ("auth_insufficient", False)
        foreign = (await people.bob.tools())["asked"]
        stolen = await people.bob.ask(invoke("i", foreign, {"case": case}, confirmation_token=approval))
        assert stolen["payload"]["details"]["reason"] == "other_call"
        for wrong in (approvals("y", "show", "ap-none"), approvals("y", "approve", "ap-none")):
            assert code(await people.eve.ask(wrong)) == "x-approval_not_found"
        assert code(await people.eve.ask(approvals("y", "approve"))) == "malformed_message"
        (view,) = (await people.eve.ask(approvals("s", "show", approval)))["payload"]["approvals"]
        assert view["state"] == "pending"
    assert case not in place.effects()


async def test_the_server_may_restart_between_request_decision_and_use(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.serving() as p:
        async with lines(p.url(), "http") as people:
            tool = (await people.ann.tools())["asked"]
            approval = await requested(people.ann, tool, "restart")
        assert p.end(signal.SIGKILL) != 0
    with place.serving() as p:
        async with lines(p.url(), "websocket") as people:
            assert await requested(people.ann, tool, "restart") == approval, "the offer and the request outlived it"
            await people.eve.ask(approvals("a", "approve", approval))
        assert p.end() == 0
    with place.serving() as p:
        async with lines(p.url(), "http") as people:
            both = [
                people.ann.ask(invoke(f"i{n}", tool, {"case": "restart"}, confirmation_token=approval)) for n in (1, 2)
            ]
            answers = await asyncio.gather(*both)
            assert sorted(str(code(one)) for one in answers) == ["None", "confirmation_invalid"]
    assert place.effects() == ["restart"]


async def test_the_operator_decides_for_standard_streams(tmp_path: Path) -> None:
    """The caller of the streams has no permission to approve; the operator of the store has."""
    place = Place(tmp_path)
    common = ("--store", place.store, "--workspace", str(tmp_path / "work"), "--degrade", "--stdio")
    command = [sys.executable, "-m", "manglecp", "serve", str(tmp_path / "pack"), *common]
    async with Client(command, connect_seconds=PATIENCE) as client:
        found = await client.evaluate("go")
        with pytest.raises(ServerError) as refused:
            await client.invoke(found["asked"], {"case": "streams"})
        approval = refused.value.approval
        assert approval is not None
        with pytest.raises(ServerError, match="auth_insufficient"):
            await client.approve(approval)
        waiting = asyncio.create_task(client.invoke(found["asked"], {"case": "streams"}, wait_for_approval=PATIENCE))
        store = open_store(place.store)
        try:
            operator = ApprovalService(store, lambda: int(datetime.now(UTC).timestamp() * 1e9))
            assert 'note(case = "streams")' in operator.show(OPERATOR, approval).text
            await asyncio.to_thread(operator.decide, OPERATOR, approval, "approved")
        finally:
            store.close()
        await asyncio.wait_for(waiting, PATIENCE)
    assert place.effects() == ["streams"]


@pytest.mark.req("ERR-30")
async def test_one_identity_has_a_hundred_pending_requests(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.serving() as p:
        async with lines(p.url(), "http") as people:
            tool = (await people.ann.tools())["asked"]
            first = await requested(people.ann, tool, "n0")
            for n in range(1, 100):
                await requested(people.ann, tool, f"n{n}")
            over = await people.ann.ask(invoke("o", tool, {"case": "one too many"}))
            assert code(over) == "rate_limited"
            assert await requested(people.ann, tool, "n0") == first, "an equal request is not another one"
            others = (await people.bob.tools())["asked"]
            await requested(people.bob, others, "of another")
            assert len((await people.eve.ask(approvals("l", "list")))["payload"]["approvals"]) == 101
            await people.eve.ask(approvals("d", "deny", first))
            await requested(people.ann, tool, "one that fits")
    assert place.effects() == []


# --- rights that are withdrawn ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_an_approver_who_lost_the_permission_decides_nothing(tmp_path: Path, way: Way) -> None:
    place = Place(tmp_path)
    with place.serving() as p:
        url = p.url()
        async with lines(url, way) as people:
            tool = (await people.ann.tools())["asked"]
            approval = await requested(people.ann, tool, "late")
            assert (await people.eve.ask(approvals("l", "list")))["type"] == "x-approval_response"
            place.write_tokens(eve=())

            async def lost() -> bool:
                return code(await people.eve.ask(approvals("l", "list"))) == "auth_insufficient"

            async with asyncio.timeout(10.0):
                while not await lost():
                    await asyncio.sleep(0.1)
            for operation in ("show", "approve", "deny"):
                assert code(await people.eve.ask(approvals("y", operation, approval))) == "auth_insufficient"
            early = await people.ann.ask(invoke("i", tool, {"case": "late"}, confirmation_token=approval))
            assert code(early) == "confirmation_required"
    assert place.effects() == []


@pytest.mark.parametrize("way", WAYS)
async def test_a_permission_withdrawn_after_the_offer_counts_at_admission(tmp_path: Path, way: Way) -> None:
    place = Place(tmp_path)
    with place.serving() as p:
        url = p.url()
        async with lines(url, way) as people:
            tool = (await people.ann.tools())["refund"]
            done = await people.ann.ask(invoke("i", tool, {"case": "before"}))
            assert done["type"] == "invoke_response"
            place.write_tokens(ann=())
            async with asyncio.timeout(10.0):
                while "refund" in await people.ann.tools():
                    await asyncio.sleep(0.1)
            late = await people.ann.ask(invoke("i", tool, {"case": "after"}))
            assert code(late) == "macro_expired"
    assert place.effects() == ["before"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_permission_withdrawn_after_admission_counts_before_the_first_effect(tmp_path: Path, way: Way) -> None:
    place = Place(tmp_path)
    with place.serving() as p:
        url = p.url()
        async with lines(url, way) as people, line(url, "http", "token-ann") as second:
            tool = (await people.ann.tools())["refund"]
            running = asyncio.create_task(people.ann.ask(invoke("i", tool, {"case": "admitted", "gate": "gate"})))
            await place.until((tmp_path / "work" / "looking.admitted").exists)
            place.write_tokens(ann=())
            async with asyncio.timeout(10.0):
                while "refund" in await second.tools():
                    await asyncio.sleep(0.1)
            assert not running.done()
            (tmp_path / "work" / "gate").touch()
            answer = await running
            assert code(answer) == "macro_expired", answer
    assert place.effects() == []


# --- dates of the client ---------------------------------------------------------------------------------------------

REFUSALS: Final = {
    "frozen_tool": "macro_expired",
    "closed_tool": "macro_expired",
    "granted": "macro_expired",
    "struck": "auth_insufficient",
    "doubted": "confirmation_required",
}


@pytest.mark.req("INVK-03", "SEC-28")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tool", REFUSALS)
async def test_a_back_dated_request_passes_no_policy(place: Place, server: str, way: Way, tool: str, case: str) -> None:
    async with lines(server, way) as people:
        answer = await people.ann.ask(intent("e", eval_time=PAST))
        assert answer["payload"]["x-hypothetical"] is True
        offered = {one["name"]: one["macro_id"] for one in answer["payload"]["macro_tools"]}
        if tool == "doubted":
            assert (await people.ann.tools())[tool] == offered[tool]
            await people.ann.tools(eval_time=PAST)  # the last evaluation is the one of the past
        else:
            assert tool not in await people.ann.tools()
        for payload in ({}, {"eval_time": PAST}, {"eval_time": PAST, "x-request_key": case}):
            refused = await people.ann.ask(invoke("i", offered[tool], {"case": case}, **payload))
            assert code(refused) == REFUSALS[tool]
    assert case not in place.effects()


# --- revisions -------------------------------------------------------------------------------------------------------


def revision(url: str) -> str:
    manifest = httpx.get(f"{url}{MANIFEST}", timeout=PATIENCE, trust_env=False).json()
    return str(manifest["payload"]["extensions"]["x-pack_digest"])


async def test_other_code_needs_another_approval(tmp_path: Path) -> None:
    place = Place(tmp_path)
    file = tmp_path / "pack" / "actions.py"
    with place.serving() as p:
        url = p.url()
        async with lines(url, "http") as people:
            tool = (await people.ann.tools())["asked"]
            approval = await requested(people.ann, tool, "edited")
            await people.eve.ask(approvals("a", "approve", approval))
            file.write_text(ACTIONS.replace('f"{case}\\n"', 'f"{case} and more\\n"'))
            before = revision(url)
            p.popen.send_signal(signal.SIGHUP)
            p.until(lambda: revision(url) != before)
            late = await people.ann.ask(invoke("i", tool, {"case": "edited"}, confirmation_token=approval))
            assert late["payload"]["details"]["reason"] == "revision", "the offer survives, the approval does not"
            assert place.effects() == []
            other = await requested(people.ann, tool, "edited")
            assert other != approval
            await people.eve.ask(approvals("a", "approve", other))
            done = await people.ann.ask(invoke("i", tool, {"case": "edited"}, confirmation_token=other))
            assert done["type"] == "invoke_response"
    assert place.effects() == ["edited and more"]

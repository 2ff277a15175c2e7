"""Facts that are pushed, and facts that one of several servers polls: real processes on one store."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from manglecp.client import Client, ServerError
from manglecp.store import Store, open_store
from tests.server.desk import PATIENCE
from tests.server.test_serve import Process, process, run
from tests.store.postgres import postgres_url

__all__ = ["postgres_url"]
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
'''
RULES: Final = """
Decl frozen(Service, Level) bound [/string, /number].
Decl healthy(Service) bound [/string].
macro("deploy", "Looks, then writes."). macro_step("deploy", 1, "look"). macro_step("deploy", 2, "note").
macro("scale", "Writes."). macro_step("scale", 1, "note").
macro("peek", "Looks."). macro_step("peek", 1, "look").
mandatory(Tool) :- intent("go"), macro(Tool, _).
"""
POLICY: Final = """
Decl stopped() .
stopped() :- frozen(_, Level), Level > 2.
prohibited("deploy", "frozen") :- stopped().
public_reason("deploy", "a freeze is on") :- stopped().
prohibited("scale", "down") :- healthy("not this one").
"""
SETTINGS: Final = """
[pack]
name = "live"
[[intents]]
name = "go"
description = "Go"
[facts.freezes]
push = true
predicates = ["frozen"]
max_facts = 5
"""
PEOPLE: Final = {"ann": [], "bot": ["push_facts:freezes"], "ops": ["push_facts"]}
FROZEN: Final = [{"pred": "frozen", "args": ["shop", 3]}]
LOOSE: Final = [{"pred": "frozen", "args": ["shop", 1]}]


@dataclass
class Place:
    """A pack, a workspace, a file of tokens and a store."""

    folder: Path
    store_url: str
    settings: str = SETTINGS
    generator: str = ""

    def __post_init__(self) -> None:
        files = {"rules/a.mg": RULES, "rules/policy/p.mg": POLICY, "actions.py": ACTIONS, "pack.toml": self.settings}
        if self.generator:
            files["facts.py"] = self.generator
        for name, text in files.items():
            file = self.folder / "pack" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (self.folder / "work").mkdir()
        tokens = self.folder / "tokens.toml"
        tokens.touch(0o600)
        tokens.write_text(
            "\n".join(
                f'[[token]]\nsha256 = "{sha256(f"token-{name}".encode()).hexdigest()}"\nidentity = "{name}"\n'
                f"auto_confirm_effects = ['filesystem']\npermissions = {json.dumps(permissions)}\n"
                for name, permissions in PEOPLE.items()
            )
        )
        (self.folder / "server.toml").write_text("worker = { claim_ms = 1500, pause_ms = 100 }\n")

    @contextmanager
    def serving(self, name: str = "a", *more: str) -> Iterator[Process]:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        options = ("--store", self.store_url, "--workspace", str(self.folder / "work"), "--degrade", *more)
        listen = ("--http", "127.0.0.1:0", "--tokens", str(self.folder / "tokens.toml"))
        config = ("--config", str(self.folder / "server.toml"))
        with process(folder, "serve", str(self.folder / "pack"), *options, *listen, *config) as p:
            yield p

    @contextmanager
    def replicas(self) -> Iterator[tuple[Process, Process]]:
        with ExitStack() as stack:
            first, second = (stack.enter_context(self.serving(name)) for name in ("a", "b"))
            first.url()
            second.url()
            yield first, second

    @contextmanager
    def opened(self) -> Iterator[Store]:
        store = open_store(self.store_url)
        try:
            yield store
        finally:
            store.close()

    def entries(self) -> list[dict[str, Any]]:
        """The bodies of the ledger entries about facts."""
        with self.opened() as store, store.read_transaction() as tx:
            return [{**entry.body, "by": entry.identity} for entry in store.ledger.rows(tx, kind="facts")]

    def effects(self) -> list[str]:
        file = self.folder / "work" / "effects"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.soak), "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    where = request.getfixturevalue("postgres_url") if request.param == "postgresql" else str(tmp_path / "store.db")
    return Place(tmp_path, where)


def client(url: str, who: str = "ann") -> Client:
    return Client(url, token=f"token-{who}", on_confirm=lambda _: True)


async def tools(url: str) -> set[str]:
    async with client(url) as asking:
        return {tool.name for tool in (await asking.evaluate("go")).tools}


async def version(url: str) -> str:
    async with httpx.AsyncClient(trust_env=False, headers={"authorization": "Bearer token-ann"}) as http:
        message = {"type": "intent_request", "id": "v", "manglecp": "2026-02-draft"}
        payload = {"intent": {"name": "go"}, "options": {"include_diagnostics": True}}
        answer = (await http.post(f"{url}/evaluate", json={**message, "payload": payload}, timeout=PATIENCE)).json()
        return str(answer["payload"]["diagnostics"]["x-facts_version"])


async def until(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            if await check():
                return
            await asyncio.sleep(0.05)


async def offers(url: str, wanted: set[str]) -> None:
    async def check() -> bool:
        return await tools(url) == wanted

    await until(check)


def put(url: str, facts: Any, who: str | None = "bot", source: str = "freezes", **headers: str) -> httpx.Response:
    credential = {} if who is None else {"authorization": f"Bearer token-{who}"}
    content = facts if isinstance(facts, bytes) else json.dumps(facts).encode()
    kind = {"content-type": "application/json", **credential, **headers}
    return httpx.put(f"{url}/facts/{source}", content=content, headers=kind, timeout=PATIENCE, trust_env=False)


@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
async def test_a_push_is_seen_everywhere_and_survives_kill(place: Place) -> None:
    with place.replicas() as (first, second):
        one, two = first.url(), second.url()
        # Before the first push nothing is known, so that deploy, whose policy reads the source, is denied.
        assert await tools(one) == await tools(two) == {"scale", "peek"}
        async with client(one, "bot") as bot:
            pushed = await bot.push_facts("freezes", LOOSE)
            assert (pushed.version, pushed.facts, pushed.added, pushed.changed) == (1, 1, 1, True)
        assert await tools(one) == {"deploy", "scale", "peek"}
        await offers(two, {"deploy", "scale", "peek"})
        assert await version(one) == await version(two)
        assert put(two, FROZEN).json()["payload"]["version"] == 2
        assert await tools(two) == {"scale", "peek"}
        first.popen.kill()
        second.popen.kill()
    with place.replicas() as (first, second):
        one, two = first.url(), second.url()
        assert await tools(one) == await tools(two) == {"scale", "peek"}
        assert await version(one) == await version(two)
        async with client(two, "ops") as ops:
            assert (await ops.push_facts("freezes", 'frozen("shop", 2).\n')).version == 3
        assert await tools(two) == {"deploy", "scale", "peek"}
        await offers(one, {"deploy", "scale", "peek"})
    recorded = place.entries()
    assert [(entry["version"], entry["by"], entry["predicates"]) for entry in recorded] == [
        (1, "bot", {"frozen": 1}),
        (2, "bot", {"frozen": 1}),
        (3, "ops", {"frozen": 1}),
    ]
    assert "shop" not in json.dumps(recorded)


async def test_a_push_that_revokes_between_admission_and_effect(place: Place) -> None:
    gate = place.folder / "work" / "gate"
    with place.replicas() as (first, second):
        put(first.url(), LOOSE)
        await offers(second.url(), {"deploy", "scale", "peek"})
        async with client(second.url()) as ann:
            (deploy,) = [tool for tool in (await ann.evaluate("go")).tools if tool.name == "deploy"]
            run = asyncio.create_task(ann.invoke(deploy, {"case": "x", "gate": str(gate)}))
            await until(lambda: asyncio.to_thread((place.folder / "work" / "looking.x").exists))
            assert put(first.url(), FROZEN).status_code == 200  # at the other replica
            await offers(second.url(), {"scale", "peek"})
            gate.touch()
            with pytest.raises(ServerError) as refused:
                await run
            assert refused.value.code in ("macro_expired", "auth_insufficient")
    assert place.effects() == []


async def test_pushes_at_once_leave_all_replicas_equal(place: Place) -> None:
    with place.replicas() as (first, second):
        urls = (first.url(), second.url())

        def push(number: int) -> int:
            facts = [{"pred": "frozen", "args": [f"s{number}", number % 5]}]
            return put(urls[number % 2], facts, "ops").status_code

        codes = await asyncio.gather(*(asyncio.to_thread(push, number) for number in range(12)))
        assert set(codes) == {200}

        async def equal() -> bool:
            return await version(urls[0]) == await version(urls[1])

        await until(equal)
        assert await tools(urls[0]) == await tools(urls[1])
    assert sorted(entry["version"] for entry in place.entries()) == list(range(1, 13))


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path, str(tmp_path / "store.db"))
    with place.serving() as server:
        url = server.url()
        assert put(url, LOOSE).status_code == 200

        def refused(facts: Any, status: int, code: str, **more: Any) -> dict[str, Any]:
            answer = put(url, facts, **more)
            assert (answer.status_code, answer.json()["payload"]["code"]) == (status, code), answer.text
            payload: dict[str, Any] = answer.json()["payload"]
            return payload

        def violation(facts: Any, code: str) -> dict[str, Any]:
            (found,) = refused(facts, 400, code)["details"]["violations"]
            assert isinstance(found, dict)
            return found

        assert violation([*LOOSE, {"pred": "healthy", "args": ["x"]}], "unknown_predicate")["fact_index"] == 1
        found = violation([{"pred": "frozen", "args": ["x", "high"]}], "type_mismatch")
        assert (found["argument_index"], found["actual_type"]) == (1, "string")
        refused([{"pred": "frozen", "args": ["x"]}], 400, "arity_mismatch")
        refused([{"pred": "frozen", "args": ["x", n]} for n in range(6)], 400, "too_many_facts")
        refused(b'frozen("x").', 400, "invalid_facts", **{"content-type": "text/plain"})
        assert "push []" in refused(b" \n", 400, "invalid_facts", **{"content-type": "text/plain"})["message"]
        refused(b'healthy("x").', 400, "invalid_facts", **{"content-type": "text/plain"})
        refused([{"pred": "disclosure_upgrade", "args": ["x"]}], 400, "invalid_facts")
        refused({"facts": []}, 400, "malformed_message")
        for injected in (b'[], "source": "other"', b'[]}, "more": {"x": 1', b'[]}} {"x": {"y": 1'):
            refused(injected, 400, "malformed_message", who="ops")
        refused(b"[", 400, "malformed_message")
        refused(b"[]", 415, "x-unsupported_media_type", **{"content-type": "application/xml"})
        refused(LOOSE, 403, "auth_insufficient", who="ann")
        refused(LOOSE, 401, "auth_required", who=None)
        refused(LOOSE, 403, "auth_insufficient", source="other")
        refused(LOOSE, 404, "x-source_not_found", source="other", who="ops")
        assert refused(LOOSE, 404, "x-source_not_found", source="freeze", who="ops")["details"]["suggestion"] == (
            "Did you mean 'freezes'?"
        )
        same = put(url, LOOSE).json()["payload"]
        assert (same["version"], same["changed"]) == (1, False)
        assert put(url, b'frozen("shop", 1).', **{"content-type": "text/plain"}).json()["payload"]["changed"] is False
        assert put(url, []).json()["payload"] | {"digest": ""} == {
            "source": "freezes",
            "version": 2,
            "digest": "",
            "facts": 0,
            "added": 0,
            "removed": 1,
            "changed": True,
        }


async def test_a_proof_names_version_digest_and_time(tmp_path: Path) -> None:
    place = Place(tmp_path, str(tmp_path / "store.db"))
    with place.serving() as server:
        pushed = put(server.url(), FROZEN).json()["payload"]
        async with client(server.url()) as ann:
            verdict = await ann.decide("deploy", {"case": "x"})
            assert (verdict.verdict, verdict.reasons) == ("deny", ("a freeze is on",))
        explain = ("decisions", "explain", "last", str(tmp_path / "pack"), "--store", place.store_url, "--degrade")
        async with asyncio.timeout(PATIENCE):
            while (told := run(*explain)).exit_code and "no_decision" in told.output:  # stored after the answer
                await asyncio.sleep(0.1)
        assert told.exit_code == 0, told.output
        source = f"freezes, version 1, {pushed['digest']}, by bot at 20"
        assert 'frozen("shop",3)' in told.stdout.replace(" ", "")
        assert source in " ".join(told.stdout.split())


STALE: Final = f"{SETTINGS}stale_after = '2s'\n"


async def test_facts_that_are_too_old_deny_what_reads_them(tmp_path: Path) -> None:
    place = Place(tmp_path, str(tmp_path / "store.db"), STALE)
    gate = place.folder / "work" / "gate"
    with place.serving() as server:
        url = server.url()
        put(url, LOOSE)
        async with client(url) as ann:
            (deploy,) = [tool for tool in (await ann.evaluate("go")).tools if tool.name == "deploy"]
            run = asyncio.create_task(ann.invoke(deploy, {"case": "r", "gate": str(gate)}))
            await until(lambda: asyncio.to_thread((place.folder / "work" / "looking.r").exists))
            await offers(url, {"scale", "peek"})  # no push since then
            gate.touch()
            with pytest.raises(ServerError, match="the facts of freezes are"):
                await run
            with pytest.raises(ServerError) as refused:
                await ann.invoke(deploy, {"case": "x"})
            assert refused.value.code == "macro_expired"
            assert "the facts of freezes are" in refused.value.message
            assert "old, and 2s are allowed" in refused.value.message
        assert put(url, LOOSE).json()["payload"]["changed"] is False  # equal facts are fresh facts
        assert "deploy" in await tools(url)
    assert place.effects() == []


async def test_stale_facts_are_kept_where_the_pack_wants_that(tmp_path: Path) -> None:
    place = Place(tmp_path, str(tmp_path / "store.db"), f"{STALE}on_stale = 'keep'\n")
    with place.serving() as server:
        assert await tools(server.url()) == {"deploy", "scale", "peek"}


GENERATOR: Final = """
import os
from pathlib import Path
from manglecp import facts

@facts("healthy", every=3600, seconds=20)
def probe(root: Path):
    text = (root / "probe").read_text()
    if text.startswith("wait"):
        import time
        time.sleep(300)
    for name in text.split():
        yield ("healthy", name)
"""
POLLED: Final = f"""{SETTINGS}
[params.root]
kind = "folder"
[facts.probe]
every = "1s"
"""


async def test_one_process_polls_and_another_takes_over(place: Place) -> None:
    (place.folder / "root").mkdir()
    (place.folder / "root" / "probe").write_text("shop")
    polled = Place(place.folder / "polled", place.store_url, POLLED, GENERATOR)
    setting = ("--set", f"root={place.folder / 'root'}")

    def owner() -> str | None:
        with polled.opened() as store, store.read_transaction() as tx:
            return store.fact_sources.list(tx, "live")["probe"].owner

    with polled.serving("a", *setting) as first:
        put(first.url(), LOOSE)
        assert await tools(first.url()) == {"deploy", "scale", "peek"}
        polling = owner()
        assert polling is not None
        with polled.serving("b", *setting) as second:
            await offers(second.url(), {"deploy", "scale", "peek"})
            (place.folder / "root" / "probe").write_text("shop not this one")
            (place.folder / "root" / "probe").write_text("not")
            assert owner() == polling
            before = await version(second.url())

            async def changed() -> bool:
                return await version(second.url()) != before

            await until(changed)
            assert owner() == polling  # the second process has only read what the first one has found
            first.popen.send_signal(signal.SIGKILL)
            (place.folder / "root" / "probe").unlink()

            async def taken_over() -> bool:
                return owner() not in (None, polling)

            await until(taken_over)

            async def failing() -> bool:
                with polled.opened() as store, store.read_transaction() as tx:
                    return (store.fact_sources.list(tx, "live")["probe"].error or "") != ""

            await until(failing)
            (place.folder / "root" / "probe").write_text("shop other")

            async def recovered() -> bool:
                with polled.opened() as store, store.read_transaction() as tx:
                    row = store.fact_sources.list(tx, "live")["probe"]
                    return row.error is None and row.facts == 2

            await until(recovered)

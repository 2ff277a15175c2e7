"""A skill is read while a tool that is offered to the client refers to it, on every transport."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from manglecp.client import Client, ServerError
from manglecp.intent import Identity, decide
from manglecp.pack import Disclosure
from manglecp.pack.settings import PackLimits
from tests.intent.packs import NOW, NOW_TEXT, skill
from tests.server.desk import RULES, Desk, Tokens, desk, encoded, intent, plain_pack
from tests.server.house import House, house

MS = 1_000_000
LONG = "# How to write\n\n" + "Write one thing at a time, and read it again. " * 50
GATED = """
needs_skill("t", "reading") :- intent("go").
needs_skill("w", "writing") :- intent("go"), client_permission("admin").
valid_for("w", fn:duration:parse("60s")) :- intent("go").
"""
PACK = plain_pack(
    RULES + GATED,
    skills=[skill("reading"), replace(skill("writing"), content=LONG), skill("idle")],
    permissions=["admin"],
    disclosure=Disclosure(inline_skill_tokens=0),
)
ADMIN, USER = Identity("root", frozenset({"admin"}), "user"), Identity("ann", frozenset(), "user")
KNOWN = {"admin": ADMIN, "user": USER, "other": Identity("bob", frozenset({"admin"}), "user")}


class Time:
    ns = NOW

    def __call__(self) -> int:
        return self.ns


async def fetched(h: House, skill_id: str, token: str) -> tuple[int, bytes]:
    answer = await h.http.get(f"/skills/{skill_id}", headers={"authorization": f"Bearer {token}"})
    return answer.status_code, answer.content


@asynccontextmanager
async def clients(h: House, token: str) -> AsyncIterator[list[Client]]:
    websocket = Client(h.url.replace("http", "ws") + "/ws", token=token)
    async with Client(h.url, token=token) as one, websocket as two:
        yield [one, two]


@pytest.mark.req("SKILL-03", "SKILL-07")
async def test_a_skill_is_readable_while_an_offer_to_the_client_refers_to_it() -> None:
    time = Time()
    async with house(PACK, auth=Tokens(KNOWN), now=time) as h:
        unknown = await fetched(h, "nothing", "admin")
        assert unknown[0] == 404
        assert [await fetched(h, name, "admin") for name in ("reading", "writing", "idle")] == [unknown] * 3

        async with clients(h, "admin") as admins, clients(h, "user") as users:
            (tool,) = [tool for tool in await admins[0].evaluate("go") if tool.name == "w"]
            context = tool.definition.context_injection
            assert [one.inline for one in context.skills] == [False]  # type: ignore[union-attr]
            for admin in admins:
                assert [one.skill_id for one in await admin.skills()] == ["reading", "writing"]
                assert (await admin.skill("writing")).content == LONG.strip()
                assert all(LONG.strip() != one.content for one in await admin.skills())
            assert (await fetched(h, "writing", "admin")) == (200, LONG.strip().encode())
            for token in ("user", "other"):  # another principal, even with the same permission
                assert await fetched(h, "writing", token) == unknown

            await users[1].evaluate("go")
            for user in users:
                assert [one.skill_id for one in await user.skills()] == ["reading"]
                for name in ("writing", "idle", "nothing"):
                    with pytest.raises(ServerError, match="x-skill_not_found"):
                        await user.skill(name)

            time.ns = NOW + 60_000 * MS  # the validity of one tool ends, not that of the other
            assert [one.skill_id for one in await admins[1].skills()] == ["reading"]
            assert await fetched(h, "writing", "admin") == unknown
            time.ns = NOW + 600_000 * MS  # and the retention of the other
            assert await admins[1].skills() == ()


@pytest.mark.req("SKILL-03")
async def test_an_offer_to_one_token_unlocks_no_skill_for_another_of_the_same_identity() -> None:
    tokens = Tokens({"admin": ADMIN, "weak": replace_permissions(ADMIN)})
    async with desk(PACK, auth=tokens) as d:
        await d.post(intent("a"), "admin")
        assert (await told(d, "weak", "writing"))["code"] == "x-skill_not_found"
        assert [one["skill_id"] for one in (await told(d, "weak"))["skills"]] == ["reading"]
        assert [one["skill_id"] for one in (await told(d, "admin"))["skills"]] == ["reading", "writing"]


@pytest.mark.req("SKILL-03")
async def test_the_present_rules_decide() -> None:
    async with desk(PACK, auth=Tokens(KNOWN)) as d:
        await d.post(intent("a"), "admin")
        changed = GATED.replace(
            'needs_skill("w", "writing") :- intent("go"),', 'needs_skill("w", "writing") :- intent("slow"),'
        )
        d.packs.append(plain_pack(RULES + changed, skills=[skill("reading"), skill("writing")], permissions=["admin"]))
        assert await d.revisions.reload() == "swapped"
        assert (await told(d, "admin", "writing"))["code"] == "x-skill_not_found"
        assert [one["skill_id"] for one in (await told(d, "admin"))["skills"]] == ["reading"]


@pytest.mark.req("SKILL-03")
async def test_facts_and_parameters_of_one_anonymous_client_unlock_no_skill_for_another() -> None:
    rules = (
        RULES
        + """
Decl note(Text) descr [direction("input")] bound [/string].
needs_skill("t", "reading") :- intent("go").
needs_skill("t", "writing") :- note("secret").
needs_skill("w", "idle") :- intent_param("key", "secret").
"""
    )
    pack = plain_pack(rules, skills=[skill("reading"), skill("writing"), skill("idle")])
    secrets: dict[str, Any] = {
        "facts": [{"pred": "note", "args": ["secret"]}],
        "intent": {"name": "go", "params": {"key": "secret"}},
    }

    def ids(answer: dict[str, Any]) -> list[str]:
        return [one["skill_id"] for one in answer["payload"]["skills"]]

    async with desk(pack) as d, d.client() as one, d.client() as two:
        await one.ask(intent("a", **secrets))
        assert ids(await two.ask(skill_request())) == ["reading"]
        for name in ("writing", "idle"):
            assert (await two.ask(skill_request(name)))["payload"]["code"] == "x-skill_not_found"
    async with desk(pack, auth=Tokens(KNOWN)) as d:
        await d.post(intent("a", **secrets), "user")
        assert [one["skill_id"] for one in (await told(d, "user"))["skills"]] == ["idle", "reading", "writing"]


@pytest.mark.req("SKILL-03")
async def test_the_proofs_for_a_request_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest offers are proven first, and no offer whose skills are proven already."""
    proofs = 0

    def counted(*args: Any, **more: Any) -> Any:
        nonlocal proofs
        proofs += 1
        return decide(*args, **more)

    def elapsed() -> float:
        return proofs * PackLimits().max_compute_ms / 4_000

    monkeypatch.setattr("manglecp.intent.offers.decide", counted)
    names = [f"tool{n:02}" for n in range(80)]
    tools = "".join(
        f'macro("{n}", "A tool."). macro_step("{n}", 1, "look"). mandatory("{n}") :- intent("go").' for n in names
    )
    shared = plain_pack(RULES + tools + 'needs_skill(T, "reading") :- macro(T, _).', skills=[skill("reading")])
    own = "".join(f'needs_skill("{n}", "s-{n}") :- intent("go").' for n in names)
    skills = [skill(f"s-{name}") for name in names]
    for made, expected in ((shared, 1), (plain_pack(RULES + tools + own, skills=skills), 64)):
        async with desk(made, auth=Tokens(KNOWN)) as d:
            await d.post(intent("a"), "user")
            proofs = 0
            assert len((await told(d, "user"))["skills"]) == expected
            assert proofs == expected
            if made is shared:
                continue
            proofs = 0
            monkeypatch.setattr("manglecp.intent.offers.time", SimpleNamespace(**(vars(time) | {"monotonic": elapsed})))
            assert len((await told(d, "user"))["skills"]) == 4, "as many as fit into the time of one evaluation"


def skill_request(skill_id: str | None = None) -> dict[str, Any]:
    payload = {"skill_id": skill_id}
    return {"type": "x-skill_request", "id": f"s-{skill_id}", "manglecp": "2026-02-draft", "payload": payload}


async def told(d: Desk, token: str, skill_id: str | None = None) -> dict[str, Any]:
    payload: dict[str, Any] = (await d.post(encoded(skill_request(skill_id)), token))[0]["payload"]
    return payload


@pytest.mark.req("SKILL-03")
async def test_the_last_offer_of_a_tool_counts() -> None:
    """A tool has the same id with and without a skill."""
    tokens = Tokens(dict(KNOWN))
    async with desk(PACK, auth=tokens) as d:
        before = await d.post(intent("a"), "admin")
        assert (await told(d, "admin", "writing"))["skills"][0]["content"] == LONG.strip()
        tokens.known["admin"] = replace_permissions(ADMIN)
        assert (await told(d, "admin", "writing"))["code"] == "x-skill_not_found", "the rules do not prove it any more"
        after = await d.post(intent("b"), "admin")
        ids = [[tool["macro_id"] for tool in answer["payload"]["macro_tools"]] for answer, _ in (before, after)]
        assert ids[0] == ids[1]
        assert (await told(d, "admin", "writing"))["code"] == "x-skill_not_found"


def replace_permissions(identity: Identity) -> Identity:
    return identity._replace(permissions=frozenset())


@pytest.mark.req("SKILL-03")
async def test_an_offer_for_another_time_is_not_current() -> None:
    async with desk(PACK, auth=Tokens(KNOWN)) as d:
        await d.post(intent("a", eval_time="2027-01-01T00:00:00Z"), "admin")
        assert (await told(d, "admin", "writing"))["code"] == "x-skill_not_found"
        await d.post(intent("a", eval_time=NOW_TEXT.replace(":00Z", ":30Z")), "admin")  # a clock that is ahead
        assert (await told(d, "admin", "writing"))["skills"]


@pytest.mark.req("SKILL-15")
async def test_a_skill_that_was_referenced_to_save_tokens_is_readable() -> None:
    inline = replace(PACK.settings, disclosure=Disclosure(inline_skill_tokens=2_000))
    async with desk(replace(PACK, settings=inline), auth=Tokens(KNOWN)) as d:
        full = (await d.post(intent("a"), "admin"))[0]["payload"]
        budget = full["diagnostics"]["x-tokens"]["count"] - 100
        cut = (await d.post(intent("b", constraints={"max_tokens_budget": budget}), "admin"))[0]["payload"]
        assert [one["skill_id"] for one in cut["required_skills"]] == ["writing"]
        assert (await told(d, "admin", "writing"))["skills"][0]["content"] == LONG.strip()


@pytest.mark.req("SKILL-07", "MANI-27")
async def test_the_manifest_names_the_way_and_no_skill() -> None:
    async with house(PACK) as h:
        answer = await h.http.get("/.well-known/manglecp/manifest.json")
        assert answer.json()["payload"]["endpoints"]["x-skills"] == "/skills"
        assert "x-skill_request" in answer.json()["payload"]["extensions"]["x-skills"]["messages"]
        assert not any(name in answer.text for name in ("writing", "reading", "idle"))


@pytest.mark.req("SKILL-03")
@pytest.mark.no_cover
async def test_every_replica_knows_the_offers(tmp_path: Path) -> None:
    """Two processes with one store, over standard streams."""
    pack = tmp_path / "pack"
    (pack / "rules").mkdir(parents=True)
    (pack / "skills").mkdir()
    code = 'from manglecp import action\n@action(effects=[])\ndef look() -> str:\n    """Look."""\n    return "seen"\n'
    (pack / "actions.py").write_text(code)
    rules = RULES.splitlines()[1].split(' macro_step("t", 2')[0] + '\nneeds_skill("t", "care") :- intent("go").\n'
    (pack / "rules" / "d.mg").write_text(rules)
    (pack / "skills" / "care.md").write_text("---\nname: Care\ndescription: How to take care.\n---\nTake care.\n")
    serve: list[str | Path] = [
        sys.executable,
        "-m",
        "manglecp",
        "serve",
        pack,
        "--stdio",
        "--store",
        tmp_path / "store.db",
        "--degrade",
    ]
    async with Client(serve) as one, Client(serve) as two:
        with pytest.raises(ServerError, match="x-skill_not_found"):
            await two.skill("care")
        await one.evaluate("go")
        assert (await two.skill("care")).content == "Take care."
        assert [found.skill_id for found in await two.skills()] == ["care"]

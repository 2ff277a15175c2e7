"""Case 31: a credential that is removed, changed or expired has no further effect, in a run, in an approval, or later.

Tokens are those of a real file, which the attacks change while a run is under way, or before it is resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manglecp.intent import Identity
from manglecp.server.auth import tokens as tokens_module
from manglecp.server.auth.tokens import TokensFile
from manglecp.server.auth_config import AuthConfig
from manglecp.store import RunState, open_store
from manglecp.wire import WireError
from tests.adversarial._invoked import invoked
from tests.deadlines import patience
from tests.invoke.chains import chain, effect, steps
from tests.invoke.test_resuming import BACK, SHORT, Lost, at, names, the_run
from tests.invoke.workshop import Fails, Shop, shop
from tests.server.test_auth import entry

STAFF = 'permitted("t") :- client_trust("staff"), client_permission("pay").'
BOB = {"identity": "bob", "permissions": '["pay"]', "trust": '"staff"'}
OTHER = entry("other", "lee")
PAY = effect("pay", 3, ("payments",))


class Desk:
    """A file of tokens, with one of bob, and the authentication of a server that uses it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tokens.toml"
        self.change(entry("bob's", **BOB))
        self.auth = self.restarted()

    def change(self, *entries: str) -> None:
        self.path.write_text("\n".join((*entries, OTHER)))

    def restarted(self) -> AuthConfig:
        file = TokensFile(self.path)
        return AuthConfig(file, tokens=file)

    def current(self, identity: Identity) -> Identity:
        return self.auth.current(identity)

    async def identify(self, token: str) -> Identity:
        assert self.auth.tokens is not None
        identity = await self.auth.tokens.identify("bearer", token)
        assert identity is not None
        return identity


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(tokens_module, "_RELOAD_SECONDS", 0.0)
    return Desk(tmp_path)


GONE = {
    "removed": (),
    "only another token of bob is left": (entry("bob's second", **BOB),),
    "expired": (entry("bob's", expires="2020-01-01T00:00:00Z", **BOB),),
    "given to another identity": (entry("bob's", **{**BOB, "identity": "eve"}),),
}
LESS = {
    "another trust level": entry("bob's", **{**BOB, "trust": '"user"'}),
    "a permission less": entry("bob's", **{**BOB, "permissions": "[]"}),
    "it is with another token of bob": entry("bob's", "bob") + entry("bob's second", **BOB),
}


def meanwhile(change: Callable[[], Any]) -> Callable[[dict[str, Any]], Any]:
    def work(given: dict[str, Any]) -> Any:
        change()
        return given

    return work


@pytest.mark.req("SEC-28")
@pytest.mark.parametrize("entries", GONE.values(), ids=GONE)
@invoked
async def test_a_credential_that_is_gone_after_admission_stops_the_first_effect(
    desk: Desk, entries: tuple[str, ...]
) -> None:
    """No rule is needed for it: the pack has no policy at all."""
    bob = await desk.identify("bob's")
    work = {"look": meanwhile(lambda: desk.change(*entries))}
    async with shop(chain(steps("look", "write")), work, refresh_identity=desk.current) as s:
        macro_id = (await s.tools(identity=bob))["t"]
        error = await s.refused(macro_id, {"n": 1}, evaluate=False, identity=bob)
        assert (error.code, error.details) == ("auth_invalid", {"reason": "credential"})
        assert names(s) == ["look"]
        again = await s.refused(macro_id, {"n": 1}, evaluate=False, identity=bob)  # a session that is still open
        assert again.code == "auth_invalid"
        assert names(s) == ["look"]


@pytest.mark.parametrize("entries", LESS.values(), ids=LESS)
@invoked
async def test_a_credential_with_less_rights_after_admission_stops_the_first_effect(desk: Desk, entries: str) -> None:
    bob = await desk.identify("bob's")
    work = {"look": meanwhile(lambda: desk.change(entries))}
    async with shop(chain(steps("look", "write"), policy=STAFF), work, refresh_identity=desk.current) as s:
        assert (await s.refused("t", {"n": 1}, identity=bob)).code == "macro_expired"
        assert names(s) == ["look"]


@pytest.mark.parametrize("policy", ["", STAFF])
@pytest.mark.parametrize("entries", GONE.values(), ids=GONE)
@invoked
async def test_a_credential_that_is_gone_between_effects_stops_the_next_one(
    desk: Desk, entries: tuple[str, ...], policy: str
) -> None:
    bob = await desk.identify("bob's")
    work = {"write": meanwhile(lambda: desk.change(*entries))}
    async with shop(chain(steps("write", "write"), policy=policy), work, refresh_identity=desk.current) as s:
        error = await s.refused("t", {"n": 1}, identity=bob)
        assert error.code == "execution_failed"
        assert names(s) == ["write"]
        assert the_run(s.store).state == RunState.NEEDS_DECISION


@invoked
async def test_what_a_credential_has_done_is_undone_when_it_is_gone(desk: Desk) -> None:
    """An undo reverts what was permitted."""
    bob = await desk.identify("bob's")
    calls: list[int] = []

    def write(given: dict[str, Any]) -> Any:
        calls.append(1)
        if len(calls) == 2:
            desk.change()
            raise Fails
        return given

    async with shop(chain(steps("write", "write"), *BACK), {"write": write}, refresh_identity=desk.current) as s:
        await s.refused("t", {"n": 1}, identity=bob, confirm=True)
        assert names(s) == ["write", "write", "erase"]


@pytest.mark.parametrize("point", ["accepted", "finished:s2"])
@pytest.mark.parametrize("process", ["with the file", "with access tokens too", "without the file", "by default"])
@invoked
async def test_a_restart_does_not_give_a_removed_credential_its_rights_back(
    desk: Desk, point: str, process: str
) -> None:
    bob, store = await desk.identify("bob's"), open_store(":memory:")
    pack = chain(steps("look", "write", "write"), policy=STAFF)
    async with shop(pack, store=store, settings=SHORT, point=at(point), refresh_identity=desk.current) as s:
        with pytest.raises(Lost):
            await s.invoke("t", {"n": 1}, identity=bob)
    before = names(s)
    desk.change()
    urls = dict.fromkeys(("issuer", "audience", "keys", "token_url"), "https://issuer.example")
    auth = {
        "with the file": desk.restarted(),
        "with access tokens too": AuthConfig.of(desk.path, dict(urls)),
        "without the file": AuthConfig(),
    }.get(process)
    more: dict[str, Any] = {} if auth is None else {"refresh_identity": auth.current}
    async with shop(pack, store=store, settings=SHORT, **more) as s:
        async with asyncio.timeout(patience(60)):
            while await s.invoker.take_over() is None:
                await asyncio.sleep(0.01)
        assert "write" not in names(s)
        effects_before = before.count("write")
        assert the_run(store).state == (RunState.NEEDS_DECISION if effects_before else RunState.FAILED)
    store.close()


@invoked
async def test_a_restart_leaves_a_valid_credential_its_rights(desk: Desk) -> None:
    bob, store, pack = await desk.identify("bob's"), open_store(":memory:"), chain(steps("write"), policy=STAFF)
    async with shop(pack, store=store, settings=SHORT, point=at("accepted"), refresh_identity=desk.current) as s:
        with pytest.raises(Lost):
            await s.invoke("t", {"n": 1}, identity=bob)
    async with shop(pack, store=store, settings=SHORT, refresh_identity=desk.restarted().current) as s:
        async with asyncio.timeout(patience(60)):
            while await s.invoker.take_over() is None:
                await asyncio.sleep(0.01)
        assert names(s) == ["write"]
    store.close()


@invoked
async def test_an_access_token_that_expires_has_no_further_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    bob = Identity("bob", frozenset(), "user", expires_at=1_001.0)

    def expire() -> None:
        now[0] = 1_001.0

    for tools, ran in ((("look", "write"), ["look"]), (("write", "write"), ["write"])):
        now[0] = 1_000.0
        work = {ran[0]: meanwhile(expire)}
        async with shop(chain(steps(*tools)), work) as s:
            await s.refused("t", {"n": 1}, identity=bob)
            assert names(s) == ran


# --- approvals -------------------------------------------------------------------------------------------------------

WAIVES = {"identity": "bob", "auto_confirm_effects": '["payments"]'}


async def pay(s: Shop, identity: Identity) -> str:
    """Pay without an approval, and return the code of the error, or "paid"."""
    macro_id = (await s.tools(identity=identity))["t"]
    try:
        await s.invoke(macro_id, {"n": 1}, evaluate=False, identity=identity)
    except WireError as error:
        return error.code
    return "paid"


@pytest.mark.req("SEC-24")
@invoked
async def test_a_waiver_is_of_its_token_and_not_of_other_tokens_of_the_identity(desk: Desk) -> None:
    desk.change(entry("agent", "bob"), entry("batch", **WAIVES))
    agent, batch = await desk.identify("agent"), await desk.identify("batch")
    async with shop(chain(steps("pay"), actions=(PAY,)), refresh_identity=desk.current) as s:
        assert await pay(s, agent) == "confirmation_required"
        assert await pay(s, batch) == "paid"
        desk.change(entry("agent", "bob"), entry("batch", expires="2020-01-01T00:00:00Z", **WAIVES))
        assert await pay(s, agent) == "confirmation_required"
        assert await pay(s, batch) == "auth_invalid"
        desk.change(entry("agent", "bob"))
        assert await pay(s, batch) == "auth_invalid"
        desk.change(entry("agent", "bob"), entry("batch", "bob"))
        assert await pay(s, batch) == "confirmation_required"
        assert names(s) == ["pay"]


LEE = {"identity": "lee", "permissions": '["approve", "finance"]'}
APPROVERS = {
    "removed": (),
    "without the permission approve": (entry("lee's", **{**LEE, "permissions": '["finance"]'}),),
    "without the role": (entry("lee's", **{**LEE, "permissions": '["approve"]'}),),
    "expired": (entry("lee's", expires="2020-01-01T00:00:00Z", **LEE),),
    "only another token of lee": (entry("lee's second", **LEE),),
    "given to another identity": (entry("lee's", **{**LEE, "identity": "kim"}),),
}


@pytest.mark.req("SEC-22")
@pytest.mark.parametrize("entries", APPROVERS.values(), ids=APPROVERS)
@invoked
async def test_an_approval_counts_only_while_its_approver_may_approve(desk: Desk, entries: tuple[str, ...]) -> None:
    bobs = entry("bob's", **BOB)
    desk.change(bobs, entry("lee's", **LEE))
    bob, lee = await desk.identify("bob's"), await desk.identify("lee's")
    pack = chain(steps("pay"), actions=(PAY,), policy='needs_approval("t", "finance").')
    async with shop(pack, refresh_identity=desk.current) as s:
        first = await s.approve(await s.refused("t", {"n": 1}, identity=bob), lee)
        second = await s.approve(await s.refused("t", {"n": 2}, identity=bob), lee)
        desk.change(bobs, *entries)
        error = await s.refused("t", {"n": 1}, identity=bob, confirmation_token=first)
        assert (error.code, (error.details or {})["reason"]) == ("confirmation_invalid", "approver")
        assert s.bench.ran == []
        desk.change(bobs, entry("lee's", **LEE))
        await s.invoke("t", {"n": 2}, identity=bob, confirmation_token=second)


@invoked
async def test_an_access_token_of_an_approver_may_expire_after_its_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was valid when the approver decided, and cannot be withdrawn."""
    now = [1_000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    lee = Identity("lee", frozenset({"approve"}), "user", expires_at=1_001.0)
    async with shop(chain(steps("pay"), actions=(PAY,))) as s:
        token = await s.approve(await s.refused("t", {"n": 1}), lee)
        late = await s.refused("t", {"n": 2})
        now[0] = 2_000.0
        with pytest.raises(WireError, match="permission approve"):
            await s.approve(late, lee)
        await s.invoke("t", {"n": 1}, confirmation_token=token)
        assert names(s) == ["pay"]

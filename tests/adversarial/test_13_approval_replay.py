"""Case 13: an approval is for one requester, one call, one revision, one subject, one server and one use."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.intent import Identity, chain as chains
from manglecp.invoke.approval import LIFETIME_MS
from manglecp.store import open_store
from manglecp.wire import WireError
from tests.adversarial._invoked import invoked
from tests.intent.packs import NOW, action
from tests.invoke.chains import chain, effect, steps
from tests.invoke.workshop import APPROVER, ME, Shop, invocation, shop

PAY = effect("pay", 3, ("payments",), params={"n": {"type": "integer"}, "to": {"type": "string"}})
RULES = (
    'macro_step("t", 1, "pay").',
    'macro("u", "Another."). mandatory("u"). macro_step("u", 1, "pay").',
)
ARGS = {"n": 100, "to": "kim"}
KIM = Identity("kim")


async def approved(s: Shop, args: Any = None) -> str:
    return await s.approve(await s.refused("t", args or ARGS))


async def refused(s: Shop, token: str, reason: str, tool: str = "t", args: Any = None, identity: Identity = ME) -> None:
    error = await s.refused(tool, args or ARGS, identity=identity, confirmation_token=token)
    assert (error.code, (error.details or {})["reason"]) == ("confirmation_invalid", reason)


@pytest.mark.req("INVK-10", "ERR-27", "SEC-22", "SEC-37")
@invoked
async def test_an_approval_fits_its_call_and_no_other() -> None:
    async with shop(chain(*RULES, actions=(PAY,))) as s:
        token = await approved(s)
        for change in ({"n": 101}, {"to": "kin"}, {"to": "kim "}, {"to": "Kim"}):
            await refused(s, token, "other_call", args={**ARGS, **change})
        await refused(s, token, "other_call", tool="u")
        await s.tools(identity=KIM)
        await refused(s, token, "other_call", identity=KIM)
        assert s.bench.ran == []
        await s.invoke("t", dict(reversed(ARGS.items())), confirmation_token=token)  # the same in another order
        await refused(s, token, "used")
        await refused(s, token, "used")
        assert s.bench.ran == [("pay", ARGS)]


@pytest.mark.parametrize("change", [str.upper, lambda t: t[:-1], lambda t: t + "0", lambda t: f" {t}", lambda _: ""])
@invoked
async def test_a_changed_id_is_no_approval(change: Any) -> None:
    async with shop(chain(*RULES, actions=(PAY,))) as s:
        await refused(s, change(await approved(s)), "other_call")
        assert s.bench.ran == []


@invoked
async def test_an_agent_cannot_approve_its_own_request() -> None:
    """It has the id of the request, its own credential, and every message of the protocol."""
    async with shop(chain(*RULES, actions=(PAY,))) as s:
        error = await s.refused("t", ARGS)
        approval: str = (error.details or {})["challenge"]["approval"]
        with pytest.raises(WireError) as decided:
            s.invoker.approvals.decide(ME, approval, "approved")
        assert decided.value.code == "auth_insufficient"
        again = await s.refused("t", ARGS, confirmation_token=approval)
        assert again.code == "confirmation_required"
        assert s.bench.ran == []


@invoked
async def test_an_expired_approval_stays_expired_when_the_clock_is_set_back() -> None:
    clock = [NOW]
    async with shop(chain(*RULES, actions=(PAY,)), clock=lambda: clock[0]) as s:
        token = await approved(s)
        clock[0] += LIFETIME_MS * 1_000_000
        await refused(s, token, "expired")
        assert s.bench.ran == []


@invoked
async def test_an_approval_of_one_store_means_nothing_at_another() -> None:
    """Staging and production: the same pack, the same credentials, two stores."""
    async with shop(chain(*RULES, actions=(PAY,))) as staging, shop(chain(*RULES, actions=(PAY,))) as production:
        token = await approved(staging)
        await refused(production, token, "other_call")
        assert production.bench.ran == []
        await staging.invoke("t", ARGS, confirmation_token=token)


@invoked
async def test_another_revision_of_the_pack_needs_another_approval() -> None:
    store = open_store(":memory:")
    try:
        async with shop(chain(*RULES, actions=(PAY,)), store=store) as s:
            token = await approved(s)
        async with shop(chain(*RULES, "# other code", actions=(PAY,)), store=store) as s:
            await refused(s, token, "revision")
            assert s.bench.ran == []
            await s.invoke("t", ARGS, confirm=True)
    finally:
        store.close()


@invoked
async def test_a_collision_of_ids_does_not_move_an_approval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were two chains to share an id, the approval would still be bound to the whole digest."""
    monkeypatch.setattr("manglecp.intent.composition.macro_id", lambda _: "m-the-same")
    put = effect("put", params={"path": {"type": "string"}})
    rules = (steps("put"), 'arg_value("t", 1, "path", P) :- text_of(1, P).', 'needs_confirmation("t").')
    async with shop(chain(*rules, actions=(put,))) as s:
        harmless = [("text_of", 1, "docs/typo.md")]
        assert await s.tools(facts=harmless) == {"t": "m-the-same"}
        token = await s.approve(await s.refused("m-the-same", {}, evaluate=False))
        assert "docs/typo.md" in s.invoker.approvals.show(APPROVER, token).text
        await s.tools(facts=[("text_of", 1, "../../prod/drop-all.sql")])
        await s.invoke("m-the-same", {}, evaluate=False, confirmation_token=token)
        assert s.bench.ran == [("put", {"path": "docs/typo.md"})]
    assert chains.macro_id("sha256:" + "a" * 64) == "m-" + "a" * 32


# --- subjects --------------------------------------------------------------------------------------------------------

SUBJECT = {"path": {"type": "string"}}
SHOW = action("show", params=SUBJECT, output_schema={"type": "object", "properties": {"tree": {}, "diff": {}}})
COMMIT = effect(
    "commit",
    params={**SUBJECT, "tree": {"type": "string"}},
    required=("path",),
    preview="show",
    previewed=frozenset({"tree"}),
)


def repository(files: dict[str, str]) -> dict[str, Any]:
    def show(given: dict[str, Any]) -> dict[str, Any]:
        text = files[given["path"]]
        return {"tree": f"tree of {text}", "diff": f"+{text}\n"}

    return {"show": show, "commit": lambda given: {**given, "text": files[given["path"]]}}


@invoked
async def test_the_approver_sees_the_preview_and_a_changed_subject_is_refused() -> None:
    files = {"a.py": "good"}
    pack = chain(steps("commit"), 'needs_confirmation("t").', actions=(SHOW, COMMIT))
    async with shop(pack, repository(files)) as s:
        token = await s.approve(await s.refused("t", {"path": "a.py"}))
        text = s.invoker.approvals.show(APPROVER, token).text
        assert "  | +good" in text.splitlines()
        files["a.py"] = "import backdoor"
        error = await s.refused("t", {"path": "a.py"}, confirmation_token=token)
        assert (error.code, (error.details or {})["reason"]) == ("confirmation_invalid", "subject")
        assert [name for name, _ in s.bench.ran].count("commit") == 0
        files["a.py"] = "good"
        await s.invoke("t", {"path": "a.py"}, confirmation_token=token)
        assert ("commit", {"path": "a.py", "tree": "tree of good"}) in s.bench.ran


@invoked
async def test_a_subject_that_changes_between_admission_and_effect_is_refused() -> None:
    files, pack = {"a.py": "good"}, chain(steps("look", "commit"), 'needs_confirmation("t").', actions=(SHOW, COMMIT))

    def look(given: dict[str, Any]) -> dict[str, Any]:
        files["a.py"] = "import backdoor"
        return given

    async with shop(pack, {**repository(files), "look": look}) as s:
        token = await s.approve(await s.refused("t", {"path": "a.py", "n": 1}))
        error = await s.refused("t", {"path": "a.py", "n": 1}, confirmation_token=token)
        assert (error.code, (error.details or {})["reason"]) == ("confirmation_invalid", "subject")
        assert [name for name, _ in s.bench.ran].count("commit") == 0


@invoked
async def test_the_agent_cannot_provide_what_the_preview_provides() -> None:
    files, pack = {"a.py": "good"}, chain(steps("commit"), 'needs_confirmation("t").', actions=(SHOW, COMMIT))
    async with shop(pack, repository(files)) as s:
        error = await s.refused("t", {"path": "a.py", "tree": "tree of evil"})
        assert error.code == "schema_validation_failed"


@pytest.mark.parametrize("rule", ['arg_from("t", 1, "tree", T)', 'arg_value("t", 1, "tree", T)'])
@invoked
async def test_rules_cannot_pass_on_what_the_preview_provides(rule: str) -> None:
    pack = chain(steps("commit"), f'{rule} :- text_of(1, T). needs_confirmation("t").', actions=(SHOW, COMMIT))
    async with shop(pack, repository({"a.py": "good"})) as s:
        assert "t" in await s.tools()
        assert "t" not in await s.tools(facts=[("text_of", 1, "tree")])


@invoked
async def test_without_its_preview_a_call_is_not_shown_to_an_approver() -> None:
    pack = chain(steps("commit"), 'needs_confirmation("t").', actions=(SHOW, COMMIT))
    async with shop(pack, repository({})) as s:
        s.bench.work["show"] = _fail
        error = await s.refused("t", {"path": "a.py"})
        assert (error.code, (error.details or {})["reason"]) == ("execution_failed", "preview_failed")
        assert s.invoker.approvals.pending(APPROVER) == []


def _fail(_: Any) -> Any:
    from tests.invoke.workshop import Fails

    raise Fails


@invoked
async def test_a_preview_that_leaves_out_what_it_provides_does_not_disarm_the_action() -> None:
    pack = chain(steps("commit"), 'needs_confirmation("t").', actions=(SHOW, COMMIT))
    async with shop(pack, {**repository({"a.py": "good"}), "show": lambda _: {"diff": "+good"}}) as s:
        error = await s.refused("t", {"path": "a.py"}, confirm=True)
        assert error.code == "execution_failed"
        assert [name for name, _ in s.bench.ran].count("commit") == 0


# --- values that are not arguments of the call -----------------------------------------------------------------------

BILL = (steps("look", "pay"), 'arg_step("t", 2, "n", 1, "/amount").', 'arg_value("t", 2, "to", "kim").')


@invoked
async def test_the_approver_sees_the_value_of_a_read_and_another_value_is_refused() -> None:
    bill = {"amount": 5, "read at": 1}
    async with shop(chain(*BILL, actions=(PAY,)), {"look": lambda _: dict(bill)}) as s:
        token = await approved(s, {"n": 1})
        assert s.invoker.approvals.show(APPROVER, token).text.splitlines()[-2:] == ["Values of step 2:", "  n: 5"]
        bill["amount"] = 99_999
        await refused(s, token, "subject", args={"n": 1})
        assert [name for name, _ in s.bench.ran].count("pay") == 0
        bill |= {"amount": 5, "read at": 2}  # only what the effect takes counts
        await s.invoke("t", {"n": 1}, confirmation_token=token)
        assert s.bench.ran[-1] == ("pay", {"n": 5, "to": "kim"})


@invoked
async def test_no_action_runs_for_a_token_that_is_not_an_approval() -> None:
    async with shop(chain(*BILL, actions=(PAY,)), {"look": lambda _: {"amount": 5}}) as s:
        error = await s.refused("t", {"n": 1})
        pending: str = (error.details or {})["challenge"]["approval"]
        s.bench.ran.clear()
        assert (await s.refused("t", {"n": 1}, confirmation_token=pending)).code == "confirmation_required"
        await refused(s, "ap-invented", "other_call", args={"n": 1})
        await s.invoke("t", {"n": 1}, confirmation_token=await s.approve(error))
        s.bench.ran.clear()
        s.bench.work["look"] = _fail  # as after an effect that cannot be repeated
        await refused(s, pending, "used", args={"n": 1})
        assert s.bench.ran == []


@invoked
async def test_a_value_that_changes_between_admission_and_effect_is_refused() -> None:
    amounts = [5, 5, 99_999]  # for the request, at the admission, in the run
    async with shop(chain(*BILL, actions=(PAY,)), {"look": lambda _: {"amount": amounts.pop(0)}}) as s:
        await refused(s, await approved(s, {"n": 1}), "subject", args={"n": 1})
        assert [name for name, _ in s.bench.ran] == ["look", "look", "look"]


@invoked
async def test_a_previewed_step_with_a_value_of_a_read_has_its_preview() -> None:
    files = {"a.py": "good", "b.py": "import backdoor", "picked": "a.py"}
    pack = chain(
        steps("look", "commit"),
        'arg_step("t", 2, "path", 1, "/name").',
        'needs_confirmation("t").',
        actions=(SHOW, COMMIT),
    )
    async with shop(pack, {**repository(files), "look": lambda _: {"name": files["picked"]}}) as s:
        token = await approved(s, {"n": 1})
        assert "  | +good" in s.invoker.approvals.show(APPROVER, token).text.splitlines()
        for name, value in (("picked", "b.py"), ("a.py", "import backdoor")):
            before = files[name]
            files[name] = value
            await refused(s, token, "subject", args={"n": 1})
            files[name] = before
        await s.invoke("t", {"n": 1}, confirmation_token=token)
        committed = [given for name, given in s.bench.ran if name == "commit"]
        assert committed == [{"path": "a.py", "tree": "tree of good"}]


@pytest.mark.parametrize(
    ("before", "source"),
    [(("write",), 1), (("write", "look"), 2), (("look", "write", "look"), 3)],
    ids=["of an effect", "of a read after an effect", "of a second read after an effect"],
)
@invoked
async def test_a_value_that_is_not_known_before_the_first_effect_cannot_be_approved(
    before: tuple[str, ...], source: int
) -> None:
    number = len(before) + 1
    rules = (steps(*before, "pay"), f'arg_step("t", {number}, "n", {source}, "/n").')
    async with shop(chain(*rules, f'arg_value("t", {number}, "to", "kim").', actions=(PAY,))) as s:
        error = await s.refused("t", {"n": 1})
        assert (error.code, (error.details or {})["reason"]) == ("execution_failed", "not_approvable")
        assert f"step {number} (pay) takes 'n' from step {source}" in str(error)
        assert s.invoker.approvals.pending(APPROVER) == []
        assert s.bench.ran == []


@invoked
async def test_a_step_may_undo_an_effect_as_its_undo_does() -> None:
    rules = (steps("write", "erase"), 'undo_step("t", 1, "erase"). undo_out("t", 1, "n", "/n").')
    for pointer, code in (("/n", "confirmation_required"), ("/other", "execution_failed")):
        binding = f'arg_step("t", 2, "n", 1, "{pointer}").'
        async with shop(chain(*rules, binding, 'needs_confirmation("t").')) as s:
            assert (await s.refused("t", {"n": 1})).code == code


# --- servers ---------------------------------------------------------------------------------------------------------


@invoked
async def test_an_approval_holds_at_equal_servers_only() -> None:
    """Two servers with one store and one pack; the second has another workspace."""
    store = open_store(":memory:")
    try:
        async with shop(chain(*RULES, actions=(PAY,)), store=store, server_digest="sha256:a") as s:
            token = await approved(s)
        async with shop(chain(*RULES, actions=(PAY,)), store=store, server_digest="sha256:b") as s:
            await refused(s, token, "server")
            assert s.bench.ran == []
        async with shop(chain(*RULES, actions=(PAY,)), store=store, server_digest="sha256:a") as s:
            await s.invoke("t", ARGS, confirmation_token=token)  # a replica
            assert s.bench.ran == [("pay", ARGS)]
    finally:
        store.close()


@invoked
async def test_a_used_approval_cannot_be_used_again_under_a_request_key() -> None:
    async with shop(chain(*RULES, actions=(PAY,))) as s:
        token = await approved(s)
        macro_id = (await s.tools())["t"]
        for key in ("one", "one", "two"):
            request = invocation(macro_id, ARGS, confirmation_token=token, request_key=key)
            if key == "two":
                with pytest.raises(WireError, match="used already"):
                    await s.invoker.invoke(request, ME)
            else:
                await s.invoker.invoke(request, ME)
        assert s.bench.ran == [("pay", ARGS)]

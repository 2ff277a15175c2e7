"""Case 14, through an invocation: one string of bytes is checked, approved, recorded and sent."""

from __future__ import annotations

import json
from typing import Any

from manglecp.base.digest import digest, digest_text
from tests.adversarial._invoked import invoked
from tests.invoke.chains import chain, effect, steps
from tests.invoke.workshop import APPROVER, ME, invocation, shop

PARTS = {"path": {"type": "string"}, "depth": {"type": "integer"}}


@invoked
async def test_what_is_approved_recorded_and_sent_is_the_same() -> None:
    put = effect("put", 3, ("payments",), params=PARTS)
    rules = (steps("put"), 'macro_param("t", "depth", ["type": "integer", "default": 3]).')
    args = {"path": "ﬁle\u00e9e\u0301"}  # nothing is normalised on the way
    async with shop(chain(*rules, actions=(put,))) as s:
        token = await s.approve(await s.refused("t", args))
        approval = s.invoker.approvals.show(APPROVER, token)
        assert approval.binding.args_digest == digest(args)
        assert json.dumps(args["path"], ensure_ascii=False) in approval.text
        macro_id = (await s.tools())["t"]
        await s.invoker.invoke(invocation(macro_id, args, confirmation_token=token), ME)
        (call,) = s.bench.calls
        assert json.loads(call["input_json"]) == {"path": args["path"], "depth": 3}
        entries = s.ledger()
        admission = next(body for kind, body in entries if kind == "admission")
        assert admission["args_digest"] == approval.binding.args_digest
        assert digest_text(call["input_json"]) in str(entries)


@invoked
async def test_arguments_that_are_changed_after_the_request_change_nothing() -> None:
    """The first step changes the object that the client's arguments came in."""
    async with shop(chain(steps("look", "write"))) as s:
        mine = (await s.tools())["t"]
        request = invocation(mine, {"n": 1})

        def look(given: dict[str, Any]) -> dict[str, Any]:
            request.payload.args["n"] = 999
            return given

        s.bench.work["look"] = look
        await s.invoker.invoke(request, ME)
        assert s.bench.ran == [("look", {"n": 1}), ("write", {"n": 1})]


@invoked
async def test_an_argument_cannot_take_the_place_of_a_frozen_value() -> None:
    put = effect("put", params=PARTS)
    rules = (steps("put"), 'arg_value("t", 1, "path", "safe.txt").')
    async with shop(chain(*rules, actions=(put,))) as s:
        error = await s.refused("t", {"depth": 1, "path": "/etc/passwd"})
        assert error.code == "schema_validation_failed"
        await s.invoke("t", {"depth": 1})
        assert s.bench.ran == [("put", {"path": "safe.txt", "depth": 1})]

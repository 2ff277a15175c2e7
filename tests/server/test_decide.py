"""Decisions about calls over each transport: the verdict that admission would reach."""

from __future__ import annotations

from typing import Any

import pytest

from manglecp.client import Client, ServerError
from manglecp.intent import Identity
from tests.client.test_real_server import WAYS, target
from tests.invoke.chains import chain, steps
from tests.server.desk import Tokens
from tests.server.house import house

CLERK = Identity("clerk", frozenset(), "user")
BOSS = Identity("boss", frozenset({"large"}), "user")
AUTH = {"clerk": CLERK, "boss": BOSS}
POLICY = """
prohibited("t", "limit of clerks") :- call("t"), call_arg("n", N), N > 100, !client_permission("large").
public_reason("t", "more than 100 needs the permission large") :- prohibited("t", "limit of clerks").
four_eyes("t") :- call("t"), call_arg("n", N), N > 500.
public_reason("t", "more than 500 needs a second person") :- four_eyes("t").
"""


def told(result: Any) -> tuple[str, tuple[str, ...]]:
    return result.verdict, tuple(result.reasons)


@pytest.mark.parametrize("way", WAYS)
async def test_the_verdict_is_that_of_the_admission(way: str) -> None:
    pack = chain(steps("write"), policy=POLICY)
    async with house(pack, auth=Tokens(dict(AUTH))) as h:
        async with Client(target(way, h), token="clerk") as clerk:
            tool = (await clerk.evaluate("go"))["t"]
            assert told(await clerk.decide(tool, {"n": 100})) == ("allow", ())
            reasons = ("more than 100 needs the permission large",)
            assert told(await clerk.decide(tool, {"n": 101})) == ("deny", reasons)
            assert told(await clerk.decide("t", {"n": 101})) == ("deny", reasons)  # policy alone
            with pytest.raises(ServerError, match="more than 100 needs the permission large") as refused:
                await clerk.invoke(tool, {"n": 101})
            assert (refused.value.code, refused.value.details["reasons"]) == ("auth_insufficient", list(reasons))
            assert (await clerk.invoke(tool, {"n": 100})).result is not None
        async with Client(target(way, h), token="boss") as boss:
            tool = (await boss.evaluate("go"))["t"]
            assert told(await boss.decide(tool, {"n": 101})) == ("allow", ())
            second = ("more than 500 needs a second person",)
            assert told(await boss.decide(tool, {"n": 501})) == ("ask", second)
            with pytest.raises(ServerError, match=second[0]) as asked:
                await boss.invoke(tool, {"n": 501})
            assert (asked.value.code, asked.value.details["reasons"]) == ("confirmation_required", list(second))
            assert told(await boss.decide("t", {"n": 1}, intent="go")) == ("allow", ())
            assert told(await boss.decide("unknown")) == ("deny", ())
            with pytest.raises(ServerError) as refused:
                await boss.decide(tool, {"n": "many"})
            assert refused.value.code == "schema_validation_failed"

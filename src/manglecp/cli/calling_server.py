"""One invocation from the shell at a server: evaluate, find the tool, ask the person, wait for the answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from manglecp.base.text import escape_invisible
from manglecp.cli.calling import NotProven, arguments, print_answer, showing, status_of
from manglecp.cli.outputs import Progress
from manglecp.cli.servers import Person, Server, asked_at_terminal, talk
from manglecp.client import Client, Question, Tool
from manglecp.invoke import Answer
from manglecp.wire import WireError, read_instant, why_not_lines
from manglecp.wire.messages import UNSET, InvokeResult, Options

__all__ = ["call_server"]

_NOT_NOW: Final = frozenset({"macro_expired", "x-macro_not_yet_valid"})
_CLOCKS_DIFFER_NS: Final = 60_000_000_000


def call_server(
    url: str,
    server: Server,
    intent: Mapping[str, Any],
    tool: str,
    args: Mapping[str, str],
    *,
    who: str | None,
    confirm: bool,
    request_key: str | None,
    as_json: bool,
) -> int:
    """The exit status."""

    async def work(client: Client) -> InvokeResult:
        found = await _find(client, intent, tool)
        with ExitStack() as line:
            progress = line.enter_context(Progress("running"))

            def ask(question: Question) -> bool:
                line.close()  # a question is not written over
                return confirm or asked_at_terminal(question)

            outcome = await client.invoke(
                found,
                arguments(args, found.definition),
                request_key=request_key,
                eval_time=intent["eval_time"],
                on_progress=showing(progress),
                on_confirm=Person(url, server, who, ask).on_confirm(),
            )
        return outcome.answer

    try:
        answer: Answer = talk(url, server, work)
    except WireError as error:
        answer = _at_another_time(error, intent["eval_time"])
    print_answer(answer, as_json=as_json)
    return status_of(answer)


def _at_another_time(error: WireError, at: str) -> WireError:
    """Rules take the time of the request for now. Whether a tool still holds, the server's own clock says."""
    if error.code not in _NOT_NOW or abs(read_instant(at) - time.time_ns()) < _CLOCKS_DIFFER_NS:
        return error
    why = f"it was proven for {at}, and whether it holds is a matter of the server's clock: leave --now out"
    return WireError(error.code, f"{error.message}; {why}, or take facts without a recorded time", error.details)


async def _find(client: Client, intent: Mapping[str, Any], name: str) -> Tool:
    """The tool, if it is proven. Otherwise people are told what blocks it, if the server says so."""
    asked = intent["intent"]
    question = (asked["name"], asked["params"], intent["facts"])
    at = intent["eval_time"]
    found = await client.evaluate(*question, eval_time=at, options=Options(disclosure_preference="full"))
    if name in found:
        return found[name]
    proven = f"; proven are {', '.join(tool.name for tool in found)}" if len(found) else ""
    options = Options(why_not=(name,), disclosure_preference="minimal")
    hints = (await client.evaluate(*question, eval_time=at, options=options)).result.proof_hints
    blocked = () if hints is UNSET or hints.why_not is UNSET else hints.why_not
    why = tuple(escape_invisible(line) for one in blocked for line in ("", *why_not_lines(one)))
    raise NotProven(f"No tool {name} is proven for the intent {asked['name']}{proven}", why)

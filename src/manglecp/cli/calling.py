"""One invocation from the shell: evaluate, find the tool, ask the person, wait for the answer.

The person at the terminal is who consents: what the server asks is shown here, and signed here with the secret of this
machine's user. With a request key the shell also looks after a run that it started before and that nobody carries out
any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from manglecp.base.text import escape_invisible
from manglecp.cli import INTERRUPTED
from manglecp.cli.asking import LOCAL, bold, message_of
from manglecp.cli.consenting import agreed
from manglecp.cli.intent_request import value_of
from manglecp.cli.intent_text import what_to_state
from manglecp.cli.invocation_text import answer_lines, failure_lines
from manglecp.cli.outputs import Progress, write_lines, write_text
from manglecp.cli.places import Place
from manglecp.intent import Identity
from manglecp.invoke import Answer, Invoker, Opened, open_packs, sign
from manglecp.store import RunState, StoreError
from manglecp.wire import WireError, encode, read_instant, why_not_lines
from manglecp.wire.messages import UNSET, IntentResponse, InvokeResponse, InvokeResult, MacroTool, ProgressPayload

__all__ = [
    "Asked",
    "NotProven",
    "arguments",
    "call",
    "hearing",
    "interruptible",
    "print_answer",
    "showing",
    "status_of",
]

_LOOK_AGAIN: Final = 1.0
"""Seconds between two looks at a run that somebody else began."""
_LINES: Final = 20
_NO_SUCH_PLACE: Final = re.compile(r"\[Errno (?:2|13|30)\]")
"""What actions run into that look for a folder of their own: not found, not permitted, read-only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says."""

    intent: Mapping[str, Any]
    tool: str
    args: Mapping[str, str]
    identity: Identity
    confirm: bool
    request_key: str | None
    as_json: bool


async def call(folder: Path, asked: Asked, place: Place) -> int:
    """The exit status."""
    overheard: list[str] = []
    telling = hearing(overheard) if asked.identity.trust == LOCAL else None
    clock = _clock(asked.intent["eval_time"])
    with contextlib.ExitStack() as loading:
        progress = loading.enter_context(Progress("loading"))
        async with open_packs([folder], clock=clock, on_failure=telling, **place) as opened:
            progress.doing = "evaluating"
            session = _Session(asked, opened)
            try:
                tool = await session.find()
                loading.close()  # from here on there may be a question
                answer: Answer = await session.invoke(tool)
            except WireError as error:
                answer = error
    print_answer(answer, as_json=asked.as_json, overheard=overheard, workspace=bool(place["workspace"]))
    return status_of(answer)


def hearing(overheard: list[str]) -> Callable[[str, str], None]:
    """Keep what hosts say of calls that failed, for whoever owns this machine; the last lines of it."""

    def hear(action: str, detail: str) -> None:
        overheard.extend(escape_invisible(f"  {action}: {line}") for line in detail.strip().splitlines()[-_LINES:])

    return hear


def status_of(answer: Answer) -> int:
    """The exit status that tells of it."""
    if isinstance(answer, InvokeResult):
        return 0
    return INTERRUPTED if answer.code == "cancelled" else 1


def _clock(at: str) -> Callable[[], int]:
    """A clock that goes on from this time: a recorded situation can be played again."""
    start, begun = read_instant(at), time.monotonic_ns()
    return lambda: start + time.monotonic_ns() - begun


class _Session:
    """One pack, one who asks."""

    def __init__(self, asked: Asked, opened: Opened) -> None:
        self._asked = asked
        self._opened = opened
        self._invoker: Invoker = opened.invokers[0]

    # --- the tool -----------------------------------------------------------------------------------------------------

    async def find(self) -> MacroTool:
        """The tool, if it is proven. Otherwise people are told what blocks it."""
        answer = await self._evaluate({"disclosure_preference": "full"})
        tools = answer.payload.macro_tools
        for tool in tools:
            if tool.name == self._asked.tool:
                return tool
        intent, name = self._asked.intent["intent"]["name"], self._asked.tool
        proven = f"; proven are {', '.join(tool.name for tool in tools)}" if tools else ""
        raise NotProven(f"No tool {name} is proven for the intent {intent}{proven}", await self._blocked())

    async def _blocked(self) -> tuple[str, ...]:
        answer = await self._evaluate({"x-why_not": [self._asked.tool], "disclosure_preference": "minimal"})
        hints = answer.payload.proof_hints
        if hints is UNSET or hints.why_not is UNSET:
            return ()
        return tuple(escape_invisible(line) for blocked in hints.why_not for line in ("", *why_not_lines(blocked)))

    async def _evaluate(self, options: Mapping[str, Any]) -> IntentResponse:
        pack = self._invoker.domain.pack
        request = message_of("intent_request", {**self._asked.intent, "options": dict(options)}, pack)
        return await self._invoker.evaluate(request, self._asked.identity)

    # --- the invocation -----------------------------------------------------------------------------------------------

    async def invoke(self, tool: MacroTool) -> Answer:
        """Its answer; once more with a token, if a person has to agree and does."""
        try:
            return (await self._send(tool)).payload
        except WireError as error:
            challenge = (error.details or {}).get("challenge")
            if error.code != "confirmation_required" or challenge is None:
                return error
            if not self._asked.confirm and not agreed(str(challenge["text"]).splitlines()):
                return error
        try:
            return (await self._send(tool, self._token(challenge))).payload
        except WireError as error:
            return error

    async def _send(self, tool: MacroTool, token: str | None = None) -> InvokeResponse:
        payload: dict[str, Any] = {"macro_id": tool.macro_id, "args": arguments(self._asked.args, tool)}
        if token is not None:
            payload["confirmation_token"] = token
        if self._asked.request_key is not None:
            payload["x-request_key"] = self._asked.request_key
        request = message_of("invoke_request", payload, self._invoker.domain.pack)
        with Progress("running") as progress, interruptible() as cancel:
            caretaker = asyncio.create_task(self._take_care())
            try:
                return await self._invoker.invoke(
                    request, self._asked.identity, progress=showing(progress), cancel=cancel
                )
            finally:
                caretaker.cancel()

    def _token(self, challenge: Mapping[str, Any]) -> str:
        who = self._asked.identity.name
        secret = self._opened.secrets.of(who)
        assert secret is not None  # one of this machine's user is derived for everybody
        about = (challenge["macro_id"], challenge["args_digest"], challenge["nonce"], challenge["issued_ms"])
        return sign(secret, who, *about)

    async def _take_care(self) -> None:
        """Carry out what an earlier call with this key began, if its process is gone: nobody else may be there."""
        key = self._asked.request_key
        while key is not None:
            await asyncio.sleep(_LOOK_AGAIN)
            with contextlib.suppress(StoreError):  # it is looked at again
                with self._opened.store.read_transaction() as tx:
                    run = self._opened.store.runs.by_key(tx, self._asked.identity.name, key)
                if run is not None and run.state == RunState.RUNNING:
                    await self._invoker.take_over(run.run_id)


class NotProven(WireError):
    """There is no such tool now; ``why`` is for people."""

    def __init__(self, message: str, why: tuple[str, ...]) -> None:
        super().__init__("macro_not_found", message)
        self.why = why


def arguments(given: Mapping[str, str], tool: MacroTool) -> dict[str, Any]:
    """What is declared as text is text, whatever it looks like."""
    schema = {} if tool.input_schema is UNSET else tool.input_schema
    properties = schema.get("properties", {})
    return {name: _argument(text, properties.get(name)) for name, text in given.items()}


def _argument(text: str, schema: Any) -> Any:
    value = value_of(text)
    textual = isinstance(schema, dict) and schema.get("type") == "string"
    return text if textual and not isinstance(value, str) else value


def showing(progress: Progress) -> Callable[[ProgressPayload], None]:
    """What to call with progress of the server, so that the person who waits sees it."""

    def show(payload: ProgressPayload) -> None:
        doing = payload.detail or "finishing"
        progress.doing = f"{doing}, {payload.percent} %"

    return show


@contextlib.contextmanager
def interruptible() -> Iterator[asyncio.Event]:
    """The event is set by Ctrl-C. A second one ends the process at once: what is on record can be taken up later."""
    cancel = asyncio.Event()
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if cancel.is_set():
            click.echo("\nended; `manglecp runs list` shows what is left to do", err=True)
            os._exit(INTERRUPTED)
        cancel.set()
        click.echo("\ncancelling after the step under way; Ctrl-C again ends at once", err=True)

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    except (ValueError, RuntimeError):  # not in the main thread: nobody sends signals there
        yield cancel
        return
    try:
        yield cancel
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def print_answer(
    answer: Answer, *, as_json: bool, overheard: Sequence[str] = (), workspace: bool | None = None
) -> None:
    """Results to standard output, errors to where errors go. ``workspace`` says whether there was one, if known."""
    if as_json:
        if isinstance(answer, WireError):
            said = encode(answer.answering("shell"))
        else:
            said = encode(InvokeResponse(id="shell", payload=answer))
        write_text(said.decode() + "\n")
        return
    if isinstance(answer, InvokeResult):
        write_lines(answer_lines(answer, bold=bold()))
        return
    for line in (*failure_lines(answer, overheard), *what_to_state(answer)):
        click.echo(line, err=True)
    if isinstance(answer, NotProven):
        for line in answer.why:
            click.echo(line, err=True)
    if answer.code == "confirmation_required" and (answer.details or {}).get("challenge") is not None:
        click.echo("  add --confirm to agree to this", err=True)
    if answer.code == "schema_validation_failed":
        for name in _missing(answer):
            click.echo(escape_invisible(f"  add --arg {name}=VALUE"), err=True)
    if workspace is False and any(_NO_SUCH_PLACE.search(line) for line in overheard):
        click.echo("  there is no folder to work in: --workspace DIR names one", err=True)


def _missing(error: WireError) -> Iterator[str]:
    """Arguments of the tool itself that were left out."""
    for wrong in (error.details or {}).get("schema_errors", ()):
        if wrong.get("keyword") == "required" and wrong["path"].count("/") == 1:
            yield wrong["path"].removeprefix("/")

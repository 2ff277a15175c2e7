"""One invocation from the command line, of a pack on this machine or at a server.

The user at the terminal is the approver: of a pack as the operator of this machine, of a server with the credential in
use, if it has the permission. With a request key, the run of an earlier call whose process ended is resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from manglecp.base.text import escape_invisible
from manglecp.cli import INTERRUPTED
from manglecp.cli.intent_request import clock_from, value_of
from manglecp.cli.options import LOCAL, RuntimeOptions, bold
from manglecp.cli.output import ProgressLine, write_lines, write_text
from manglecp.cli.servers import (
    Approver,
    ServerOptions,
    approval_lines,
    prompt_for_approval,
    run_with_client,
)
from manglecp.cli.tool_text import answer_lines, argument_schemas, failure_lines, missing_fact_lines
from manglecp.client import Client, Tool
from manglecp.intent import Identity, request_message
from manglecp.invoke import (
    Invoker,
    OpenPacks,
    OperatorApprovals,
    RunObserver,
    RunResponse,
    open_packs,
    progress_reporter,
)
from manglecp.store import RunState, StoreError
from manglecp.wire import WireError, encode, read_instant, why_not_lines
from manglecp.wire.messages import (
    UNSET,
    IntentResponse,
    InvokeResponse,
    InvokeResult,
    MacroTool,
    Options,
    ProgressPayload,
    ProofHints,
    UnsetType,
)

_POLL_SECONDS: Final = 1.0  # for a run that an earlier call began
_MAX_HOST_LINES: Final = 20
_NO_FOLDER: Final = re.compile(r"\[Errno (?:2|13|30)\]")  # not found, not permitted, read-only


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """The command line of ``manglecp call``."""

    intent: Mapping[str, Any]
    tool: str
    args: Mapping[str, str]
    confirm: bool
    approval: str | None
    wait: float
    request_key: str | None
    as_json: bool


async def call(folder: Path, request: CallRequest, identity: Identity, runtime: RuntimeOptions) -> int:
    host_lines: list[str] = []
    on_failure = keep_failures(host_lines) if identity.trust == LOCAL else None
    clock = clock_from(request.intent["eval_time"])
    with contextlib.ExitStack() as loading:
        progress = loading.enter_context(ProgressLine("loading"))
        opening = open_packs([runtime.of_pack(folder)], runtime.open_store, clock=clock, on_failure=on_failure)
        async with opening as opened:
            progress.doing = "evaluating"
            session = _Session(request, identity, opened)
            try:
                tool = await session.find()
                loading.close()  # the progress line would overwrite a prompt
                answer: RunResponse = await session.invoke(tool)
            except WireError as error:
                answer = error
    print_answer(
        answer,
        as_json=request.as_json,
        host_lines=host_lines,
        workspace=bool(runtime.workspace),
        approvals=store_options(runtime, clock),
    )
    return status_of(answer)


def store_options(runtime: RuntimeOptions, clock: Callable[[], int]) -> str | None:
    """Return the options of ``manglecp approvals``; None if that process has another store or another clock."""
    if runtime.where == ":memory:" or abs(clock() - time.time_ns()) > _CLOCK_SKEW_NS:
        return None
    return "" if runtime.where is None else f" --store {shlex.quote(runtime.where)}"


def keep_failures(lines: list[str]) -> Callable[[str, str], None]:
    """Return a callback that appends the last lines which hosts write about failed calls."""

    def keep(action: str, detail: str) -> None:
        lines.extend(escape_invisible(f"  {action}: {line}") for line in detail.strip().splitlines()[-_MAX_HOST_LINES:])

    return keep


def status_of(answer: RunResponse) -> int:
    if isinstance(answer, InvokeResult):
        return 0
    return INTERRUPTED if answer.code == "cancelled" else 1


class _Session:
    def __init__(self, request: CallRequest, identity: Identity, opened: OpenPacks) -> None:
        self._request = request
        self._identity = identity
        self._opened = opened
        self._invoker: Invoker = opened.invokers[0]
        self._approver = Approver(OperatorApprovals(self._invoker.approvals), self._approve)

    async def find(self) -> MacroTool:
        """Return the tool. Raises :class:`NotProven` with the reasons."""
        answer = await self._evaluate({"disclosure_preference": "full"})
        tools = answer.payload.macro_tools
        for tool in tools:
            if tool.name == self._request.tool:
                return tool
        hints = await self._evaluate({"x-why_not": [self._request.tool], "disclosure_preference": "minimal"})
        raise NotProven(self._request, [tool.name for tool in tools], hints.payload.proof_hints)

    async def _evaluate(self, options: Mapping[str, Any]) -> IntentResponse:
        pack = self._invoker.domain.pack
        request = request_message("intent_request", {**self._request.intent, "options": options}, pack, "shell")
        return await self._invoker.offers.evaluate(request, self._identity)

    async def invoke(self, tool: MacroTool) -> InvokeResult:
        """Invoke the tool; a second time with the approval request that was stored for it."""
        payload: dict[str, Any] = {"macro_id": tool.macro_id, "args": arguments(self._request.args, tool)}
        if self._request.request_key is not None:
            payload["x-request_key"] = self._request.request_key
        approval = self._request.approval
        if approval is None:
            try:
                return await self._send(payload)
            except WireError as error:
                if error.code != "confirmation_required" or not error.details:
                    raise
                approval = await self._approver.decided(error.details["challenge"]["approval"])
            if approval is None:
                raise WireError("x-confirmation_declined", f"{self._request.tool} was not approved")
        return await self._send({**payload, "confirmation_token": approval})

    def _approve(self, text: str) -> bool | None:
        return self._request.confirm or prompt_for_approval(text)

    async def _send(self, payload: Mapping[str, Any]) -> InvokeResult:
        request = request_message("invoke_request", payload, self._invoker.domain.pack, "shell")
        with ProgressLine("running") as progress, interruptible() as cancel:
            resuming = asyncio.create_task(self._resume_earlier_run())
            try:
                observer = RunObserver(cancelled=cancel, progress=progress_reporter(progress_callback(progress)))
                return (await self._invoker.invoke(request, self._identity, observer)).payload
            finally:
                resuming.cancel()

    async def _resume_earlier_run(self) -> None:
        """Resume the run of an earlier call with this key if its process ended; a worker may not exist."""
        key = self._request.request_key
        while key is not None:
            await asyncio.sleep(_POLL_SECONDS)
            with contextlib.suppress(StoreError):  # polled again
                with self._opened.store.read_transaction() as tx:
                    run = self._opened.store.runs.by_key(tx, self._identity.name, key)
                if run is not None and run.state == RunState.RUNNING:
                    await self._invoker.take_over(run.run_id)


class NotProven(WireError):
    """The error of a tool that is not proven; ``why`` are lines of text with the reasons."""

    def __init__(self, request: CallRequest, proven: Sequence[str], hints: ProofHints | UnsetType) -> None:
        others = f"; proven are {', '.join(proven)}" if proven else ""
        intent = request.intent["intent"]["name"]
        super().__init__("macro_not_found", f"No tool {request.tool} is proven for the intent {intent}{others}")
        blocked = () if hints is UNSET or hints.why_not is UNSET else hints.why_not
        self.why = tuple(escape_invisible(line) for one in blocked for line in ("", *why_not_lines(one)))


def arguments(given: Mapping[str, str], tool: MacroTool) -> dict[str, Any]:
    """Decode arguments. An argument of type string is not decoded, even if it is valid JSON."""
    textual = {name for name, schema in argument_schemas(tool).items() if schema.get("type") == "string"}
    values = {name: value_of(text) for name, text in given.items()}
    return {n: given[n] if n in textual and not isinstance(value, str) else value for n, value in values.items()}


def progress_callback(progress: ProgressLine) -> Callable[[ProgressPayload], None]:
    def show(payload: ProgressPayload) -> None:
        doing = payload.detail or "finishing"
        progress.doing = f"{doing}, {payload.percent} %"

    return show


@contextlib.contextmanager
def interruptible() -> Iterator[asyncio.Event]:
    """Yield an event that Ctrl-C sets. A second Ctrl-C ends the process; the run can be resumed from its journal."""
    cancel = asyncio.Event()
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if cancel.is_set():
            click.echo("\nended; `manglecp runs list` lists unfinished runs", err=True)
            os._exit(INTERRUPTED)
        cancel.set()
        click.echo("\ncancelling after the current step; press Ctrl-C again to exit immediately", err=True)

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    except (ValueError, RuntimeError):  # not in the main thread, which gets the signals
        yield cancel
        return
    try:
        yield cancel
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def print_answer(
    answer: RunResponse,
    *,
    as_json: bool,
    host_lines: Sequence[str] = (),
    workspace: bool | None = None,
    approvals: str | None = None,
) -> None:
    """Print the result or the error. ``workspace`` is whether the run had one; None if unknown.

    ``approvals`` are the options of ``manglecp approvals`` for the store or the server.
    """
    if as_json:
        if isinstance(answer, WireError):
            message = encode(answer.answering("shell"))
        else:
            message = encode(InvokeResponse(id="shell", payload=answer))
        write_text(message.decode() + "\n")
        return
    if isinstance(answer, InvokeResult):
        write_lines(answer_lines(answer, bold=bold()))
        return
    why = answer.why if isinstance(answer, NotProven) else ()
    lines = (*failure_lines(answer, host_lines), *missing_fact_lines(answer), *why)
    for line in (*lines, *approval_lines(answer, approvals)):
        click.echo(line, err=True)
    if answer.code == "schema_validation_failed":
        for name in _missing(answer):
            click.echo(escape_invisible(f"  add --arg {name}=VALUE"), err=True)
    if workspace is False and any(_NO_FOLDER.search(line) for line in host_lines):
        click.echo("  the run has no workspace: give one with --workspace DIR", err=True)


def _missing(error: WireError) -> Iterator[str]:
    for wrong in (error.details or {}).get("schema_errors", ()):
        if wrong.get("keyword") == "required" and wrong["path"].count("/") == 1:
            yield wrong["path"].removeprefix("/")


_NOT_NOW: Final = frozenset({"macro_expired", "x-macro_not_yet_valid"})
_CLOCK_SKEW_NS: Final = 60_000_000_000


def call_server(url: str, server: ServerOptions, request: CallRequest) -> int:
    at, options = request.intent["eval_time"], f" --server {shlex.quote(url)}"

    async def work(client: Client) -> InvokeResult:
        tool = await _find(client, request)
        with ExitStack() as line:
            progress = line.enter_context(ProgressLine("running"))

            def decide(text: str) -> bool | None:
                line.close()  # the progress line would overwrite a prompt
                return prompt_for_approval(text, confirmed=request.confirm)

            def wait(approval: str) -> None:
                if request.wait:
                    progress.doing = "waiting for the approval"
                    how = escape_invisible(f"manglecp approvals approve {approval}{options}")
                    click.echo(f"waiting {request.wait:g} s for the approval: {how}", err=True)

            outcome = await client.invoke(
                tool,
                arguments(request.args, tool.definition),
                request_key=request.request_key,
                eval_time=at,
                approval=request.approval,
                wait_for_approval=request.wait,
                on_progress=progress_callback(progress),
                on_confirm=None if request.approval else Approver(client, decide, wait).on_confirm,
            )
        return outcome.response

    try:
        answer: RunResponse = run_with_client(url, server, work)
    except WireError as error:
        answer = _explain_expiry(error, at)
    print_answer(answer, as_json=request.as_json, approvals=options)
    return status_of(answer)


def _explain_expiry(error: WireError, at: str) -> WireError:
    """Extend the error of an expired tool: an evaluation uses the time of the request, an invocation the clock."""
    if error.code not in _NOT_NOW or abs(read_instant(at) - time.time_ns()) < _CLOCK_SKEW_NS:
        return error
    why = f"it was proven for {at}, and an invocation is proven again at the server's clock: leave --now out"
    return WireError(error.code, f"{error.message}; {why}, or use facts without a recorded time", error.details)


async def _find(client: Client, request: CallRequest) -> Tool:
    """Return the tool. Raises :class:`NotProven` with the reasons that the server discloses."""
    intent, at = request.intent["intent"], request.intent["eval_time"]
    inputs = (intent["name"], intent["params"], request.intent["facts"])
    evaluation = await client.evaluate(*inputs, eval_time=at, options=Options(disclosure_preference="full"))
    if request.tool in evaluation:
        return evaluation[request.tool]
    options = Options(why_not=(request.tool,), disclosure_preference="minimal")
    hints = (await client.evaluate(*inputs, eval_time=at, options=options)).result.proof_hints
    raise NotProven(request, [tool.name for tool in evaluation], hints)

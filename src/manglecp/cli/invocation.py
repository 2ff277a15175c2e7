"""One invocation from the command line, of a pack on this machine or at a server.

The user at the terminal is the approver: for a pack as the operator of this machine, at a server with the credential in
use, if that has the permission. With a request key, the run of an earlier call whose process ended is resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from manglecp.cli import INTERRUPTED, tool_text
from manglecp.cli.intent_request import clock_starting_at, decode_value
from manglecp.cli.options import LOCAL, RuntimeOptions, bold
from manglecp.cli.output import ProgressLine, print_stderr, write_lines
from manglecp.cli.target import Approver, TargetOptions, approval_lines, prompt_for_approval, run_with_client
from manglecp.client import Client, Tool
from manglecp.intent import Identity, request_message
from manglecp.invoke import Invoker, OpenPacks, OperatorApprovals, RunObserver, RunResponse, open_packs
from manglecp.store import RunState, StoreError
from manglecp.wire import WireError, encode, messages, read_instant

_POLL_SECONDS: Final = 1.0  # between polls for a run that an earlier call began
_MAX_HOST_LINES: Final = 20  # the last lines of a failed call that are shown
_FOLDER_ERROR: Final = re.compile(r"\[Errno (?:2|13|30)\]")  # ENOENT, EACCES, EROFS
_NOT_VALID_NOW: Final = frozenset({"macro_expired", "x-macro_not_yet_valid"})
_MAX_SKEW_NS: Final = 60_000_000_000  # a smaller difference of two clocks is ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """The command line of ``manglecp call``."""

    payload: Mapping[str, Any]  # the members intent, facts and eval_time of an intent_request
    tool: str
    args: Mapping[str, str]
    confirm: bool
    approval: str | None = None  # the id of an approval request that was approved
    wait_seconds: float = 0.0
    request_key: str | None = None


async def call_locally(folder: Path, request: CallRequest, options: TargetOptions) -> int:
    """Invoke a tool of the pack in this process, print the result, and return the exit status."""
    identity, runtime = options.caller.identity, options.runtime
    clock = clock_starting_at(request.payload["eval_time"])
    # Only the operator sees logs and failures of actions; a caller in another role (--as) does not.
    with show_action_log(visible=identity.trust == LOCAL) as host_lines, ExitStack() as progress_stack:
        progress = progress_stack.enter_context(ProgressLine("loading"))
        async with open_packs([runtime.for_pack(folder)], runtime.open_store, clock=clock) as packs:
            progress.doing = "evaluating"
            session = LocalSession(request, identity, packs)
            try:
                tool = await session.prove()
                progress_stack.close()  # the progress line would overwrite a prompt
                response: RunResponse = await session.invoke(tool)
            except WireError as error:
                response = error
    print_response(
        response,
        as_json=options.as_json,
        host_lines=host_lines,
        has_workspace=bool(runtime.workspace),
        approval_options=local_approval_options(runtime, clock),
    )
    return exit_status(response)


def local_approval_options(runtime: RuntimeOptions, clock: Callable[[], int]) -> str | None:
    """Return the options of ``manglecp approvals``; None if another process cannot use the store, or the clock."""
    if runtime.location == ":memory:" or abs(clock() - time.time_ns()) > _MAX_SKEW_NS:
        return None
    return runtime.store_words


@contextlib.contextmanager
def show_action_log(*, visible: bool = True) -> Iterator[list[str]]:
    """Print what actions log on standard error; yield a list that gets a line for each failed call."""
    failures: list[str] = []
    handler = logging.Handler()

    def emit(record: logging.LogRecord) -> None:
        action, failure = getattr(record, "action", ""), getattr(record, "failure", None)
        if visible and failure is not None:
            failures.extend(f"  {action}: {line}" for line in failure.splitlines()[-_MAX_HOST_LINES:])
        elif visible:
            print_stderr(f"{record.levelname.lower()}: {record.getMessage()}")

    handler.emit = emit  # type: ignore[method-assign]
    logger = logging.getLogger("manglecp.actions")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield failures
    finally:
        logger.removeHandler(handler)


def exit_status(response: RunResponse) -> int:
    if isinstance(response, messages.InvokeResult):
        return 0
    return INTERRUPTED if response.code == "cancelled" else 1


class LocalSession:
    """One invocation of a tool of an open pack, by the operator of this machine in the role of ``identity``."""

    def __init__(self, request: CallRequest, identity: Identity, packs: OpenPacks) -> None:
        self._request = request
        self._identity = identity
        self._packs = packs
        self._invoker: Invoker = packs.invokers[0]
        self._approver = Approver(OperatorApprovals(self._invoker.approvals), self._approve)

    async def tools(self) -> tuple[messages.MacroTool, ...]:
        """Return all tools that are proven for the intent."""
        return tuple((await self._evaluate({"disclosure_preference": "full"})).payload.macro_tools)

    async def prove(self) -> messages.MacroTool:
        """Return the requested tool. Raises :class:`NotProven` with the reasons."""
        tools = await self.tools()
        for tool in tools:
            if tool.name == self._request.tool:
                return tool
        hints = await self._evaluate({"x-why_not": [self._request.tool], "disclosure_preference": "minimal"})
        raise NotProven(self._request, [tool.name for tool in tools], hints.payload.proof_hints)

    async def _evaluate(self, options: Mapping[str, Any]) -> messages.IntentResponse:
        pack = self._invoker.domain.pack
        request = request_message("intent_request", {**self._request.payload, "options": options}, pack, "shell")
        return await self._invoker.offers.evaluate(request, self._identity)

    async def invoke(self, tool: messages.MacroTool) -> messages.InvokeResult:
        """Invoke the tool; if an approval is needed, have it decided, and invoke the tool again with the approval."""
        payload: dict[str, Any] = {"macro_id": tool.macro_id, "args": decode_arguments(self._request.args, tool)}
        if self._request.request_key is not None:
            payload["x-request_key"] = self._request.request_key
        approval = self._request.approval
        if approval is None:
            try:
                return await self._send(payload)
            except WireError as error:
                if error.code != "confirmation_required" or not error.details:
                    raise
                approval = await self._approver.settle(error.details["challenge"]["approval"])
            if approval is None:
                raise WireError("x-confirmation_declined", f"{self._request.tool} was not approved")
        return await self._send({**payload, "confirmation_token": approval})

    def _approve(self, text: str) -> bool | None:
        return self._request.confirm or prompt_for_approval(text)

    async def _send(self, payload: Mapping[str, Any]) -> messages.InvokeResult:
        request = request_message("invoke_request", payload, self._invoker.domain.pack, "shell")
        observer = RunObserver()
        with ProgressLine("running") as progress, cancel_on_interrupt(observer.cancel):
            observer.on_progress = progress_callback(progress)
            resume_task = asyncio.create_task(self._resume_earlier_run())
            try:
                return (await self._invoker.invoke(request, self._identity, observer)).payload
            finally:
                resume_task.cancel()

    async def _resume_earlier_run(self) -> None:
        """Resume the run of an earlier call with this key if its process ended; there may be no worker."""
        key = self._request.request_key
        while key is not None:
            await asyncio.sleep(_POLL_SECONDS)
            with contextlib.suppress(StoreError):  # the next poll repeats the read
                with self._packs.store.read_transaction() as tx:
                    run = self._packs.store.runs.by_key(tx, self._identity.name, key)
                if run is not None and run.state == RunState.RUNNING:
                    await self._invoker.take_over(run.run_id)


class NotProven(WireError):
    """The requested tool is not proven. ``proven`` are the names of proven tools, ``why`` lines with reasons."""

    def __init__(
        self, request: CallRequest, proven: Sequence[str], hints: messages.ProofHints | messages.UnsetType
    ) -> None:
        others = f"; proven are {', '.join(proven)}" if proven else ""
        intent = request.payload["intent"]["name"]
        super().__init__("macro_not_found", f"No tool {request.tool} is proven for the intent {intent}{others}")
        self.why = tuple(tool_text.blocked_tool_lines(hints))


def decode_arguments(texts: Mapping[str, str], tool: messages.MacroTool) -> dict[str, Any]:
    """Decode arguments as JSON or text. If the schema requires a string, ``id=42`` is the text ``42``."""
    schemas = tool_text.argument_schemas(tool)
    values = {name: decode_value(text) for name, text in texts.items()}
    for name, value in values.items():
        if schemas.get(name, {}).get("type") == "string" and not isinstance(value, str):
            values[name] = texts[name]
    return values


def progress_callback(line: ProgressLine) -> Callable[[messages.ProgressPayload], None]:
    """Return a callback that shows the progress of a run on the line."""

    def show(payload: messages.ProgressPayload) -> None:
        line.doing = f"{payload.detail or 'finishing'}, {payload.percent} %"

    return show


@contextlib.contextmanager
def cancel_on_interrupt(cancel: Callable[[], None]) -> Iterator[None]:
    """Call ``cancel`` on Ctrl-C. A second Ctrl-C ends the process; the run can be resumed from its journal."""
    loop, is_cancelled = asyncio.get_running_loop(), False

    def interrupt() -> None:
        nonlocal is_cancelled
        if is_cancelled:
            print_stderr("\nended; `manglecp runs list` lists unfinished runs")
            os._exit(INTERRUPTED)
        is_cancelled = True
        cancel()
        print_stderr("\ncancelling after the current step; press Ctrl-C again to exit immediately")

    with contextlib.suppress(ValueError, RuntimeError):  # only the main thread can handle signals
        loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def print_response(
    response: RunResponse,
    *,
    as_json: bool,
    host_lines: Sequence[str] = (),
    has_workspace: bool = True,
    approval_options: str | None = None,
) -> None:
    """Print the result or the error of an invocation.

    ``host_lines`` are lines that hosts wrote about failed calls, ``approval_options`` the options with which
    ``manglecp approvals`` reaches the approval request; None if no other process can approve.
    """
    if as_json:
        message = encode(
            response.to_message("shell")
            if isinstance(response, WireError)
            else messages.InvokeResponse(id="shell", payload=response)
        )
        write_lines([message.decode()])
        return
    if isinstance(response, messages.InvokeResult):
        write_lines(tool_text.styled(tool_text.answer_lines(response), bold()))
        return
    reasons = response.why if isinstance(response, NotProven) else ()
    print_stderr(*tool_text.failure_lines(response, host_lines), *tool_text.missing_fact_lines(response), *reasons)
    print_stderr(*approval_lines(response, approval_options), *_missing_argument_lines(response))
    if not has_workspace and any(_FOLDER_ERROR.search(line) for line in host_lines):
        print_stderr("  the run has no workspace: give one with --workspace DIR")


def _missing_argument_lines(error: WireError) -> Iterator[str]:
    schema_errors = (error.details or {}).get("schema_errors", ()) if error.code == "schema_validation_failed" else ()
    for fault in schema_errors:  # a path with one slash is an argument itself, not a member of an argument
        if fault.get("keyword") == "required" and fault["path"].count("/") == 1:
            yield f"  add --arg {fault['path'].removeprefix('/')}=VALUE"


def call_server(url: str, request: CallRequest, options: TargetOptions) -> int:
    """Invoke a tool at the server, print the result, and return the exit status."""
    eval_time, approval_options = request.payload["eval_time"], f" --server {shlex.quote(url)}"

    async def work(client: Client) -> messages.InvokeResult:
        tool = await _prove_at_server(client, request)
        with ExitStack() as progress_stack:
            progress = progress_stack.enter_context(ProgressLine("running"))

            def decide(text: str) -> bool | None:
                progress_stack.close()  # the progress line would overwrite a prompt
                return prompt_for_approval(text, confirmed=request.confirm)

            def on_pending(approval: str) -> None:
                if request.wait_seconds:
                    progress.doing = "waiting for the approval"
                    command = f"manglecp approvals approve {approval}{approval_options}"
                    print_stderr(f"waiting {request.wait_seconds:g} s for the approval: {command}")

            outcome = await client.invoke(
                tool,
                decode_arguments(request.args, tool.definition),
                request_key=request.request_key,
                eval_time=eval_time,
                approval=request.approval,
                wait_for_approval=request.wait_seconds,
                on_progress=progress_callback(progress),
                on_confirm=None if request.approval else Approver(client, decide, on_pending).on_confirm,
            )
        return outcome.response

    try:
        response: RunResponse = run_with_client(url, options.token, work)
    except WireError as error:
        response = _explain_validity(error, eval_time)
    print_response(response, as_json=options.as_json, approval_options=approval_options)
    return exit_status(response)


def _explain_validity(error: WireError, eval_time: str) -> WireError:
    """Add the reason to the error of a tool that was proven for another time than the server's clock."""
    if error.code not in _NOT_VALID_NOW or abs(read_instant(eval_time) - time.time_ns()) < _MAX_SKEW_NS:
        return error
    reason = f"it was proven for {eval_time}, and an invocation is proven again at the server's clock: leave --now out"
    return WireError(error.code, f"{error.message}; {reason}, or use facts without a recorded time", error.details)


async def _prove_at_server(client: Client, request: CallRequest) -> Tool:
    """Return the requested tool. Raises :class:`NotProven` with the reasons that the server discloses."""
    intent, eval_time = request.payload["intent"], request.payload["eval_time"]
    evaluate = partial(client.evaluate, intent["name"], intent["params"], request.payload["facts"], eval_time=eval_time)
    evaluation = await evaluate(options=messages.Options(disclosure_preference="full"))
    if request.tool in evaluation:
        return evaluation[request.tool]
    why_not = await evaluate(options=messages.Options(why_not=(request.tool,), disclosure_preference="minimal"))
    raise NotProven(request, [tool.name for tool in evaluation], why_not.result.proof_hints)

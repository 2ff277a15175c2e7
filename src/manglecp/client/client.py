"""A client: declare an intent, get the tools that the server's rules prove for it, invoke one, follow a suggestion.

    async with Client("https://desk.example", token=token, on_confirm=approve) as client:
        tools = await client.evaluate("investigate_build", facts=[{"pred": "build_result", "args": ["pay", 7, "red"]}])
        outcome = await client.invoke(tools["explain_build_failure"], {"build": 7})
        further = await client.follow(outcome)

Invocations return deltas, which change the client's working state: facts that are sent with the next intents. Requests
are validated before they are sent, the callback ``on_confirm`` is called where a tool needs an approval, and requests
that are safe to repeat are retried.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Literal, Self

import msgspec

from manglecp.base.text import truncate
from manglecp.client.approval import ApprovalRequest, OnConfirm
from manglecp.client.connection import Connection, Credential, RetryPolicy, Scheme, TokenSource
from manglecp.client.errors import ClientError, InvalidResponse, RequestRefused, ServerError
from manglecp.client.fact_checks import check_arguments, fact_objects
from manglecp.client.permit import Permit
from manglecp.client.results import EvaluationResult, InvocationResult, Tool
from manglecp.client.transports import MemoryTransport, Target, transport_to
from manglecp.client.transports.session import OnProgress
from manglecp.client.working_state import (
    AppliedDelta,
    FactInput,
    FactObject,
    NotJson,
    WorkingState,
    copy_json,
    sendable_fact,
)
from manglecp.wire import UPGRADE, messages

FromState = Literal["needed", "all", "none"]
"""The working facts to send: those that the intent lists, all that the server lists, or none."""
_MAX_CACHED_TOOLS: Final = 1_000
_MAX_APPROVALS: Final = 3  # approvals of one invocation, each of another request; the first counts even if absent
_HANDLE: Final = re.compile(r"m-[0-9a-f]{16,}")
_UNKNOWN_REQUEST: Final = messages.IntentPayload(intent=messages.Intent(name="unknown"))
"""Stands for the request of a tool that another client evaluated."""
_POLL_SECONDS: Final = 2.0  # between two attempts while an approver has not decided


class Client(Connection):
    """A client of one server: ``target`` is a URL, a command (standard streams), a server object or a transport.

    Methods that take a tool accept a :class:`Tool`, its name or its id.
    """

    def __init__(
        self,
        target: Target,
        *,
        token: TokenSource | None = None,
        scheme: Scheme | None = None,
        on_confirm: OnConfirm | None = None,
        on_progress: OnProgress | None = None,
        on_manifest: Callable[[messages.ManifestPayload], object] | None = None,
        state: WorkingState | None = None,
        retry_policy: RetryPolicy | None = None,
        response_seconds: float | None = 300.0,
        boot_seconds: float = 60.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        **options: Any,
    ) -> None:
        """Pass ``options`` to the transport: see :func:`manglecp.client.transports.transport_to`.

        ``response_seconds`` limits the wait for a response (None: no limit), ``boot_seconds`` the wait for a booting or
        draining server. ``on_confirm`` and ``on_progress`` are the defaults of :meth:`invoke`.
        """
        self.state = WorkingState() if state is None else state
        self._on_confirm = on_confirm
        self._on_progress = on_progress
        super().__init__(
            transport_to(target, **options),
            credential=None if token is None else Credential(token, scheme),
            retry_policy=retry_policy,
            response_seconds=response_seconds,
            boot_seconds=boot_seconds,
            on_manifest=on_manifest,
            sleep=sleep,
        )
        self._tools: OrderedDict[str, Tool] = OrderedDict()  # by macro_id, the newest last

    def __repr__(self) -> str:
        server = "not connected" if self._manifest is None else f"{self.manifest.domain.id}, {self.manifest.status}"
        return f"<Client: {server}>"

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.close()  # __aexit__ is not called
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def evaluate(
        self,
        intent: str,
        params: Mapping[str, Any] | None = None,
        facts: Iterable[FactInput] = (),
        *,
        eval_time: messages.Time | None = None,
        constraints: messages.Constraints | None = None,
        options: messages.Options | None = None,
        level: messages.Level | None = None,
        from_state: FromState = "needed",
    ) -> EvaluationResult:
        """Return the tools that are proven for the intent with the working facts and ``facts``.

        ``level`` is the detail level of all tools; by default it depends on their scores.
        Raises :class:`RequestRefused` with every violation in ``facts``. Working facts that the server derives itself,
        does not list or would reject are left out.
        """
        checks = await self._fact_checks()
        fact_check = checks.check(fact_objects(facts))
        working_facts = () if from_state == "none" else self.state.facts
        if from_state == "needed":
            working_facts = tuple(fact for fact in working_facts if checks.is_used_by(fact, intent))
        sendable = (sendable_fact(fact) for fact in working_facts if checks.is_listed(fact))
        all_facts = [*checks.check(sendable).facts, *fact_check.facts]
        distinct_facts = WorkingState(all_facts, max_facts=len(all_facts)).facts  # without duplicates
        checks.ensure_sendable(distinct_facts, intent, fact_check.violations)
        try:
            intent_with_params = messages.Intent(name=intent, params=None if params is None else copy_json(params))
        except NotJson as error:
            raise RequestRefused("malformed_message", f"params: {error}") from None
        request = messages.IntentPayload(
            intent=intent_with_params,
            facts=list(distinct_facts),
            eval_time=eval_time,
            constraints=constraints or messages.Constraints(),
            options=_with_level(options or messages.Options(), level),
        )
        return EvaluationResult(request, await self._evaluate(request), fact_check.warnings)

    async def _evaluate(self, payload: messages.IntentPayload) -> messages.IntentResult:
        """Send an intent request, and cache the tools in its result."""
        result: messages.IntentResult = await self._exchange(messages.IntentRequest, payload)
        for definition in result.macro_tools:
            self._tools[definition.macro_id] = Tool(definition, payload)
            self._tools.move_to_end(definition.macro_id)
        while len(self._tools) > _MAX_CACHED_TOOLS:
            self._tools.popitem(last=False)
        return result

    async def upgrade(self, tool: Tool | str) -> Tool:
        """Return the tool with its full definition; if that is not cached, evaluate the intent of the tool again."""
        tool = self._find_tool(tool)
        cached_tool = self._tools.get(tool.macro_id, tool)  # the cached definition may be newer than the caller's
        if "full" in (tool.level, cached_tool.level):
            return tool if tool.level == "full" else cached_tool
        request = tool.request
        upgrade_fact: FactObject = {"pred": UPGRADE, "args": [tool.macro_id]}
        result = await self._evaluate(
            messages.IntentPayload(
                intent=request.intent, facts=[*request.facts, upgrade_fact], eval_time=request.eval_time
            )
        )
        for definition in result.macro_tools:
            if definition.macro_id == tool.macro_id and definition.disclosure_level == "full":
                self._tools[tool.macro_id] = Tool(definition, request)
                return self._tools[tool.macro_id]
        raise RequestRefused("macro_not_found", f"the server no longer offers {tool.name} in full; evaluate again")

    def _find_tool(self, tool: Tool | str) -> Tool:
        """Return the tool itself, or the newest one with this name or macro_id. Raises :class:`RequestRefused`."""
        if isinstance(tool, Tool):
            return tool
        for candidate in reversed(self._tools.values()):
            if tool in (candidate.macro_id, candidate.name):
                return candidate
        names = ", ".join(dict.fromkeys(candidate.name for candidate in reversed(self._tools.values())))
        hint = f"known are {truncate(names, 500)}" if names else "evaluate an intent first"
        raise RequestRefused("macro_not_found", f"no evaluation returned a tool {tool!r}; {hint}")

    async def follow(
        self,
        /,  # mypy needs the slash for BlockingClient.follow
        outcome: InvocationResult,
        which: int | str | messages.SuggestedIntent = 0,
        *,
        facts: Iterable[FactInput] = (),
        **options: Any,
    ) -> EvaluationResult:
        """Evaluate an intent that an invocation suggests, with its continuation facts and ``facts``.

        ``which`` is the suggestion, its position or its name; ``options`` are further arguments of :meth:`evaluate`.
        """
        proposal = which if isinstance(which, messages.SuggestedIntent) else outcome.suggestion(which)
        checks = await self._fact_checks()
        continuation = checks.check(outcome.continuation_facts).facts  # without facts that the server would reject
        params = None if proposal.params is messages.UNSET else proposal.params
        return await self.evaluate(proposal.name, params, [*continuation, *fact_objects(facts)], **options)

    async def invoke(
        self,
        tool: Tool | str,
        args: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress | None = None,
        on_confirm: OnConfirm | None = None,
        approval: str | None = None,
        wait_for_approval: float = 0.0,
        request_key: str | None = None,
        eval_time: messages.Time | None = None,
        apply: bool = True,
    ) -> InvocationResult:
        """Invoke a tool, and apply its delta to the working state unless ``apply`` is false.

        ``approval`` is the id of an approval request that was approved. If an approval is needed and missing,
        ``on_confirm`` is called, then the approver's decision is awaited for ``wait_for_approval`` seconds; without
        both, :class:`ServerError` is raised, whose ``approval`` is the id of the request.
        The arguments are checked against the tool's schema, for which the tool is upgraded if necessary. The id of a
        tool that another client of this principal evaluated is accepted, too; then only the server checks them.
        ``request_key`` makes the invocation idempotent; the default is a random key. Cancelling the task that awaits
        this method cancels the invocation.
        """
        tool, valid_args = await self._check_call(tool, args)
        on_confirm = on_confirm or self._on_confirm
        key = request_key or secrets.token_urlsafe(18)
        token = approval or await self._approve_early(tool, valid_args, on_confirm)
        approval_count, was_reevaluated = 1, False
        deadline = asyncio.get_running_loop().time() + wait_for_approval
        first_rejection: ServerError | None = None  # the server's reason for refusing the first approval
        while True:
            payload = messages.InvokePayload(
                macro_id=tool.macro_id, args=valid_args, eval_time=eval_time, confirmation_token=token, request_key=key
            )
            try:
                response: messages.InvokeResult = await self._exchange(
                    messages.InvokeRequest,
                    payload,
                    may_repeat=tool.is_repeatable or self._has_extension("x-request_key"),
                    on_progress=on_progress or self._on_progress,
                )
            except ServerError as error:
                stored_approval = error.approval
                if stored_approval is not None and stored_approval == token:  # the approver has not decided yet
                    remaining = deadline - asyncio.get_running_loop().time()
                    if remaining <= 0:
                        raise
                    await self._sleep(min(_POLL_SECONDS, remaining))
                elif on_confirm is not None and token is not None and self._stores_new_request(error):
                    first_rejection, token = first_rejection or error, None  # the next attempt stores a new request
                elif error.code in ("confirmation_required", "confirmation_invalid") and on_confirm is not None:
                    if error.details.get("reason") == "denied":
                        raise
                    if error.code == "confirmation_invalid" or token is not None:
                        first_rejection = first_rejection or error
                    if approval_count >= _MAX_APPROVALS:
                        raise error from (None if first_rejection is error else first_rejection)
                    approval_count += 1
                    token = await self._approve(tool, valid_args, on_confirm, stored_approval, first_rejection)
                elif stored_approval is not None and wait_for_approval > 0:
                    token = stored_approval  # each attempt sends this id until the approver has decided
                elif error.code in ("macro_not_found", "macro_expired") and not (was_reevaluated or _is_foreign(tool)):
                    was_reevaluated = True
                    definitions = (await self._evaluate(tool.request)).macro_tools
                    if all(definition.macro_id != tool.macro_id for definition in definitions):
                        raise
                else:
                    raise
            else:
                applied_delta = self.state.apply(response.state_delta) if apply else AppliedDelta()
                return InvocationResult(tool, response, applied_delta)

    async def prepare(self, tool: Tool | str, args: Mapping[str, Any] | None = None) -> ApprovalRequest | None:
        """Return the approval request that the server stores for this call; None if the call needs no approval.

        Nothing is executed. Pass ``approval`` of the request to :meth:`invoke` once an approver has approved it. Raises
        :class:`ServerError` if the call is refused.
        """
        description = (self.manifest.extensions or {}).get("x-approvals")
        if not isinstance(description, dict) or "prepare" not in description:
            raise RequestRefused("not_supported", "the server stores no approval request before an invocation")
        tool, valid_args = await self._check_call(tool, args)
        payload = messages.InvokePayload(macro_id=tool.macro_id, args=valid_args, prepare=True)
        try:
            await self._exchange(messages.InvokeRequest, payload)
        except ServerError as error:
            if error.code == "x-approval_not_needed":
                return None
            if error.approval is None:
                raise
            return ApprovalRequest(tool, valid_args, tool.effects or (), tool.reversible, error.approval)
        raise InvalidResponse("the server responded with a result to a call that was only prepared")

    async def _check_call(self, tool: Tool | str, args: Mapping[str, Any] | None) -> tuple[Tool, dict[str, Any]]:
        """Return the tool in full, and the checked arguments; a tool that another client evaluated has only its id."""
        if isinstance(tool, str) and _HANDLE.fullmatch(tool) and tool not in self._tools:
            tool = Tool(messages.MacroTool(macro_id=tool, name=tool, disclosure_level="minimal"), _UNKNOWN_REQUEST)
        if not _is_foreign(tool):
            tool = await self.upgrade(tool)
        assert isinstance(tool, Tool)
        return tool, check_arguments({} if args is None else args, tool.input_schema or {})

    def _stores_new_request(self, error: ServerError) -> bool:
        """Return whether the server, after this error, stores a new approval request for a call without a token."""
        is_invalid = error.code == "confirmation_invalid" and error.details.get("reason") != "denied"
        return is_invalid and self._has_extension("x-approvals")

    async def _approve_early(self, tool: Tool, args: Mapping[str, Any], on_confirm: OnConfirm | None) -> str | None:
        """Return a token for the call; None if the call needs no token, or if the server stores a request first."""
        if not tool.needs_approval or self._is_waived(tool) or self._has_extension("x-approvals"):
            return None
        if on_confirm is None:
            raise RequestRefused("confirmation_required", f"{tool.name} needs approval: pass on_confirm")
        return await self._approve(tool, args, on_confirm, approval=None)

    def _is_waived(self, tool: Tool) -> bool:
        """Return whether the server waives approval for all effects of the tool."""
        identity = self.identity
        if identity is None or identity.trust_level != "automated" or identity.auto_confirm_effects is messages.UNSET:
            return False
        return tool.effects is not None and set(tool.effects) <= set(identity.auto_confirm_effects)

    async def _approve(
        self,
        tool: Tool,
        args: Mapping[str, Any],
        on_confirm: OnConfirm,
        approval: str | None,
        rejection: ServerError | None = None,
    ) -> str | None:
        """Call ``on_confirm``, and return the token from it, or else ``approval``.

        Raises :class:`RequestRefused` if the callback declines. ``approval`` is the id of the server's approval
        request, ``rejection`` the server's error for the first approval.
        """
        decision = on_confirm(ApprovalRequest(tool, args, tool.effects or (), tool.reversible, approval, rejection))
        if inspect.isawaitable(decision):
            decision = await decision
        if isinstance(decision, str) and decision:
            return decision
        if decision is True:
            return approval
        again = "" if rejection is None else f" again, after the server rejected the first approval: {rejection}"
        raise RequestRefused("confirmation_declined", f"{tool.name} was not approved{again}") from rejection

    async def intents(self) -> tuple[messages.IntentDescription, ...]:
        """Return the intents of the server, with the facts that they read."""
        return (await self.ready()).intents

    async def why(self, tool: Tool | str) -> messages.Derivation:
        """Return the rules and facts that prove a tool for its intent now; ``str()`` of the result is a text.

        Raises :class:`RequestRefused` if it is not proven any more.
        """
        tool = self._find_tool(tool)
        request = messages.IntentPayload(
            intent=tool.request.intent, facts=tool.request.facts, options=messages.Options(include_proof_hints=True)
        )
        hints = (await self._evaluate(request)).proof_hints
        for derivation in () if hints is messages.UNSET else hints.derivations:
            if derivation.macro_id == tool.macro_id:
                return derivation
        raise RequestRefused("macro_not_found", f"the server no longer offers {tool.name}; use why_not")

    async def why_not(
        self,
        name: str,
        intent: str,
        params: Mapping[str, Any] | None = None,
        facts: Iterable[FactInput] = (),
    ) -> messages.WhyNot:
        """Return what keeps a tool from being offered for the intent, and facts that would unlock it.

        ``str()`` of the result is a text.
        """
        options = messages.Options(why_not=(name,), include_proof_hints=True)
        hints = (await self.evaluate(intent, params, facts, options=options)).result.proof_hints
        if hints is messages.UNSET or not hints.why_not:
            raise RequestRefused("not_supported", "the server does not explain why it offers no such tool")
        return hints.why_not[0]

    def as_(self, name: str, permissions: Iterable[str] = (), *, trust: str = "user") -> Client:
        """Return a client of the same server, in this process, for a principal that your program authenticated.

        The new client has a working state of its own, and the other options of this client; use it in ``async with``.
        """
        server = self._transport.server if isinstance(self._transport, MemoryTransport) else None
        as_ = getattr(server, "as_", None)
        if as_ is None:
            raise RequestRefused("not_supported", "another principal needs a token of its own, or Client(Server(…))")
        return Client(
            as_(name, permissions, trust=trust),
            on_confirm=self._on_confirm,
            on_progress=self._on_progress,
            retry_policy=self._retry_policy,
            response_seconds=self._response_seconds,
            boot_seconds=self._boot_seconds,
        )

    async def decide(
        self,
        tool: str | Tool,
        args: Mapping[str, Any] | None = None,
        *,
        intent: str | None = None,
        params: Mapping[str, Any] | None = None,
        facts: Iterable[FactInput] = (),
    ) -> messages.DecideResult:
        """Return whether a call is allowed, needs an approval (``ask``) or is denied. Nothing is executed.

        With an intent, the tool has to be proven for it. A :class:`Tool` has the intent and facts that it was offered
        for, unless others are given.
        """
        payload = _decide_payload(tool, args, intent, params, facts)
        result: messages.DecideResult = await self._exchange(messages.DecideRequest, payload)
        return result

    @asynccontextmanager
    async def permit(
        self,
        tool: str | Tool,
        args: Mapping[str, Any] | None = None,
        *,
        approval: str | None = None,
        **question: Any,
    ) -> AsyncIterator[Permit]:
        """Yield a permit to execute a call here, and report its outcome; ``question`` as for :meth:`decide`.

        Execute the call in the block with ``permit.args``, and pass its result to ``permit.record``. An exception that
        leaves the block is reported as a failure, by the name of its class.

        Raises :class:`ServerError` if the call is denied, with ``reasons`` and ``would_unlock`` in its details, or if
        it needs an approval: then ``approval`` of the error is the id to pass once it is approved.
        """
        payload = _decide_payload(tool, args, **question, permit=True, approval=approval)
        result = await self._exchange(messages.DecideRequest, payload, may_repeat=approval is None)
        if result.permit is messages.UNSET:
            raise RequestRefused("not_supported", "the server issues no permits")
        permit = Permit(result.permit.id, result.permit.expires_at, payload.tool, payload.args)
        try:
            yield permit
        except BaseException as error:
            with suppress(ClientError):  # the error of the call is more important
                await self._exchange(messages.DecideRequest, permit.report(error))
            raise
        await self._exchange(messages.DecideRequest, permit.report(None))  # an equal report may be repeated

    async def skills(self) -> tuple[messages.Skill, ...]:
        """Return the skills (instructions) of the tools that are offered to this client now, without their texts."""
        return await self._read_skills(None)

    async def skill(self, skill_id: str) -> messages.Skill:
        """Return a skill with its complete text; a tool that is offered to this client now must refer to it."""
        return (await self._read_skills(skill_id))[0]

    async def _read_skills(self, skill_id: str | None) -> tuple[messages.Skill, ...]:
        result: messages.SkillResult = await self._exchange(
            messages.SkillMessage, messages.SkillPayload(skill_id=skill_id)
        )
        return result.skills

    async def push_facts(self, source: str, facts: str | Sequence[Mapping[str, Any]]) -> messages.FactsResult:
        """Replace all facts of a source of the server: fact objects, or facts as Mangle text.

        The credential needs the permission ``push_facts`` or ``push_facts:SOURCE``. Raises :class:`ServerError`, and
        then nothing has changed; equal facts only renew their age.
        """
        if isinstance(facts, str):
            payload = messages.FactsPayload(source=source, text=facts)
        else:
            payload = messages.FactsPayload(source=source, facts=[dict(fact) for fact in facts])
        result: messages.FactsResult = await self._exchange(messages.FactsMessage, payload)
        return result

    async def approvals(self) -> tuple[messages.ApprovalView, ...]:
        """Return the pending approval requests that this credential may decide, without their texts."""
        return await self._send_approval("list")

    async def approval(self, approval: str) -> messages.ApprovalView:
        """Return the approval request with this id, and with its complete text."""
        return (await self._send_approval("show", approval))[0]

    async def approve(self, approval: str) -> messages.ApprovalView:
        """Approve the request with this id. The credential needs the permission ``approve``."""
        return (await self._send_approval("approve", approval))[0]

    async def deny(self, approval: str) -> messages.ApprovalView:
        """Deny the request with this id. The credential needs the permission ``approve``."""
        return (await self._send_approval("deny", approval))[0]

    async def _send_approval(
        self, operation: Literal["list", "show", "approve", "deny"], approval: str | None = None
    ) -> tuple[messages.ApprovalView, ...]:
        payload = messages.ApprovalPayload(operation=operation, approval=approval)
        may_repeat = operation in ("list", "show")  # a repeated decision would be refused
        result: messages.ApprovalResult = await self._exchange(messages.ApprovalMessage, payload, may_repeat=may_repeat)
        return result.approvals


def _is_foreign(tool: Tool | str) -> bool:
    """Return whether only the id of the tool is known, because another client evaluated its intent."""
    return isinstance(tool, Tool) and tool.request is _UNKNOWN_REQUEST


def _with_level(options: messages.Options, level: messages.Level | None) -> messages.Options:
    return options if level is None else msgspec.structs.replace(options, disclosure_preference=level)


def _decide_payload(
    tool: str | Tool,
    args: Mapping[str, Any] | None,
    intent: str | None = None,
    params: Mapping[str, Any] | None = None,
    facts: Iterable[FactInput] = (),
    **members: Any,
) -> messages.DecidePayload:
    requested_intent = None
    if intent is not None:
        requested_intent = messages.Intent(name=intent, params=None if params is None else copy_json(params))
    sent_facts = [copy_json(fact) for fact in fact_objects(facts)]
    if isinstance(tool, Tool):
        requested_intent = requested_intent or tool.request.intent
        sent_facts = sent_facts or list(tool.request.facts)
        tool = tool.name
    return messages.DecidePayload(
        tool=tool, args=copy_json(args or {}), intent=requested_intent, facts=sent_facts, **members
    )

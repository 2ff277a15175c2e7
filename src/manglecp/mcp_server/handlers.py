"""The requests of MCP. The handlers are the same in both eras; only the way to ask the user differs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import mcp_types as types
import msgspec
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from manglecp import __version__
from manglecp.base.text import escape_invisible
from manglecp.client import Client, ClientError, InvocationResult, RequestRefused, ServerError, Tool
from manglecp.intent import Identity
from manglecp.mcp_server import texts
from manglecp.mcp_server.sources import Source
from manglecp.mcp_server.subscriptions import listen_handler
from manglecp.mcp_server.tools import DECLARE, EXPLAIN, INVOKE, fixed_tools, instructions
from manglecp.wire import WireError, read_instant, refused_arguments, schema_errors
from manglecp.wire.messages import UNSET, Constraints, Derivation, ManifestPayload, Options, ProgressPayload, WhyNot

_TTL_MS: Final = 60_000
_QUESTION: Final = "approval"
_SKILL: Final = "skill://"
_FORM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Approve this call", "default": False}},
    "required": ["approve"],
}
_CLOSED_WORLD: Final = frozenset({"none", "filesystem", "process"})
"""The effects on this machine only."""
_INTERNAL: Final = "The server failed; its log has the reason"
_log = logging.getLogger(__name__)
_Context: TypeAlias = ServerRequestContext[Any, Any]
_Result: TypeAlias = types.CallToolResult | types.InputRequiredResult


class VerifiedToken(AccessToken):
    """An access token, and the principal that our authentication found for it. It is not passed on."""

    identity: Any = Field(exclude=True, repr=False)


@dataclass(frozen=True, slots=True)
class McpOptions:
    """``identity`` is that of a client without an access token; ``direct`` the intent of direct mode."""

    identity: Identity
    direct: str | None = None


def make_server(source: Source, manifest: ManifestPayload, options: McpOptions) -> Server[Any]:
    """Return a server of MCP for the source, which sent the manifest."""
    handlers = _Handlers(source, options)
    is_direct = options.direct is not None
    if not (is_direct or manifest.intents):
        _log.warning("models cannot know the intents that only rules name: list them in pack.toml, [[intents]]")
    description = "Rules decide each call anew." if is_direct else instructions(manifest)
    return Server(
        manifest.domain.id,
        version=__version__,
        instructions=description,
        get_tool_input_schema=lambda _: None,  # no argument is sent as a header; otherwise each call lists the tools
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_subscriptions_listen=listen_handler(handlers.list_tools) if is_direct else None,
    )


@dataclass(frozen=True, slots=True)
class _Handlers:
    source: Source
    options: McpOptions

    @property
    def _identity(self) -> Identity:
        token = get_access_token()
        return token.identity if isinstance(token, VerifiedToken) else self.options.identity

    async def list_tools(self, _ctx: _Context | None = None, _params: Any = None) -> types.ListToolsResult:
        async with self._client() as client:
            if self.options.direct is None:
                return types.ListToolsResult(tools=fixed_tools(await client.ready()), ttl_ms=_TTL_MS)
            found = await client.evaluate(self.options.direct, level="full", from_state="none")
            tools = sorted(found, key=lambda tool: tool.name)
            return types.ListToolsResult(tools=[_direct_tool(tool) for tool in tools], ttl_ms=_ttl_ms(tools))

    async def list_resources(self, _ctx: _Context, _params: Any) -> types.ListResourcesResult:
        async with self._client() as client:
            skills = await client.skills()
        resources = [
            types.Resource(
                uri=f"{_SKILL}{skill.skill_id}",
                name=skill.name,
                description=skill.description,
                mime_type=skill.content_type or "text/markdown",
            )
            for skill in skills
        ]
        return types.ListResourcesResult(resources=resources)

    async def list_templates(self, _ctx: _Context, _params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template=f"{_SKILL}{{id}}",
            name="skill",
            description="Instructions that a tool refers to which was proven for you",
            mime_type="text/markdown",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template], ttl_ms=_TTL_MS)

    async def read_resource(self, _ctx: _Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        async with self._client() as client:
            try:
                skill = await client.skill(uri.removeprefix(_SKILL))
            except ServerError as error:
                raise MCPError(types.INVALID_PARAMS, error.message, {"uri": uri}) from None
        text = types.TextResourceContents(uri=uri, mime_type=skill.content_type or "text/markdown", text=skill.content)
        return types.ReadResourceResult(contents=[text])

    async def call_tool(self, ctx: _Context, params: types.CallToolRequestParams) -> _Result:
        try:
            async with self.source.client(self._identity) as client:
                return await _Call(self.source, self.options, self._identity, client, ctx, params).respond()
        except (ServerError, RequestRefused, WireError) as error:
            details = error.details if isinstance(error.details, Mapping) else {}
            return _failure(texts.error_text(error.code, error.message, details), error.code, error.message, details)
        except ClientError as error:
            advice = "A call of invoke may have been executed: check that before you repeat it."
            return _failure(f"The server did not respond: {error}. {advice}", "x-no_answer", str(error), {})
        except MCPError:
            raise
        except Exception:  # the SDK would send its text to clients of the old era
            _log.exception("a call failed", extra={"tool": params.name})
            return _failure(_INTERNAL, "internal_error", _INTERNAL, {})

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        """Yield a client; its errors become errors of the protocol."""
        try:
            async with self.source.client(self._identity) as client:
                yield client
        except (ServerError, RequestRefused) as error:
            raise MCPError(types.INTERNAL_ERROR, f"{error.code}: {error.message}") from None
        except ClientError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from None


@dataclass(frozen=True, slots=True)
class _Call:
    """One ``tools/call``."""

    source: Source
    options: McpOptions
    identity: Identity
    client: Client
    ctx: _Context
    params: types.CallToolRequestParams

    async def respond(self) -> _Result:
        name, args = self.params.name, self.params.arguments or {}
        if self.options.direct is not None:
            return await self._call_directly(self.options.direct, name, args)
        handlers: dict[str, Callable[[dict[str, Any]], Awaitable[_Result]]] = {
            DECLARE: self._declare,
            INVOKE: self._invoke_handle,
            EXPLAIN: self._explain,
        }
        if name not in handlers:
            message = f"there is no tool {name}; {INVOKE} takes the handle of a tool that {DECLARE} returned"
            raise MCPError(types.INVALID_PARAMS, message)
        definition = next(tool for tool in fixed_tools(self.client.manifest) if tool.name == name)
        if errors := schema_errors(args, definition.input_schema):
            raise refused_arguments(errors)
        return await handlers[name](args)

    async def _declare(self, args: dict[str, Any]) -> _Result:
        constraints = Constraints(max_tokens_budget=args.get("budget"))
        found = await self.client.evaluate(
            args["intent"],
            args.get("params"),
            args.get("facts") or (),
            constraints=constraints,
            level="full",
            from_state="none",
        )
        content = {"tools": [texts.tool_document(tool) for tool in found]}
        return _success(texts.evaluation_text(found, self.client.manifest.intents), content)

    async def _invoke_handle(self, args: dict[str, Any]) -> _Result:
        handle = args["handle"]
        if not handle.startswith("m-"):
            raise RequestRefused("macro_not_found", f"{handle} is not a handle")
        return await self._invoke(handle, handle, args.get("args") or {}, args.get("request_key"))

    async def _call_directly(self, intent: str, name: str, args: dict[str, Any]) -> _Result:
        found = await self.client.evaluate(intent, level="full", from_state="none")
        if name not in found:
            explanation = await self.client.why_not(name, intent)
            if not explanation.known:  # to this principal: the tool may exist for another one
                raise MCPError(types.INVALID_PARAMS, f"no tool {name} is offered; list the tools again")
            text = f"{name} is not offered now.\n{explanation}"
            return _failure(text, "macro_not_found", f"{name} is not offered now", {})
        if schema_errors(args, found[name].input_schema or {}):  # models write null for an optional argument
            args = {argument: value for argument, value in args.items() if value is not None}
        return await self._invoke(found[name], found[name].macro_id, args, None)

    async def _invoke(self, tool: Tool | str, handle: str, args: dict[str, Any], key: str | None) -> _Result:
        """Run the tool; if the call needs an approval, use the one that there is, or ask the user."""
        responses = self.params.input_responses or {}
        if self.params.request_state is not None and _QUESTION in responses:
            try:
                refusal = await self._attest(handle, args, self.params.request_state, responses[_QUESTION])
            except WireError as error:
                if error.code != "confirmation_invalid":
                    raise
                raise MCPError(types.INVALID_PARAMS, "requestState is not one of this call: leave it out") from None
            if refusal is not None:
                return refusal
        try:
            return await self._run(tool, args, key, None)
        except ServerError as error:
            approval = error.approval
            if approval is None:
                raise
        try:
            return await self._run(tool, args, key, approval)  # it may be approved already
        except ServerError as error:
            if error.approval is None:
                raise
            approval, details = error.approval, error.details
        return await self._ask(tool, handle, args, key, approval, details)

    async def _ask(
        self,
        tool: Tool | str,
        handle: str,
        args: dict[str, Any],
        key: str | None,
        approval: str,
        details: Mapping[str, Any],
    ) -> _Result:
        """Ask the user of the host, if that is possible and sufficient; else return how to approve the call."""
        text = await self.source.approval_text(approval) if self._can_ask() else None
        if text is None:
            refusal = texts.approval_refusal(approval, details, self.source.approve_with)
            return _failure(refusal, "confirmation_required", "A person has to approve this call", details)
        message = escape_invisible(text)
        if self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            form = types.ElicitRequestFormParams(message=message, requested_schema=_FORM)
            requests: dict[str, Any] = {_QUESTION: types.ElicitRequest(params=form)}
            # The id is no secret, and its approval request in the store is bound to principal, tool and arguments.
            return types.InputRequiredResult(input_requests=requests, request_state=approval)
        try:
            answer = await self.ctx.session.elicit_form(message, _FORM, related_request_id=self.ctx.request_id)
        except MCPError:  # the host cannot show the form after all
            answer = types.ElicitResult(action="cancel")
        refusal_result = await self._attest(handle, args, approval, answer)
        return refusal_result or await self._run(tool, args, key, approval)

    def _can_ask(self) -> bool:
        capabilities = self.ctx.session.client_capabilities
        elicitation = None if capabilities is None else capabilities.elicitation
        # Clients of the first revision with elicitation declare an empty object, which means forms.
        has_forms = elicitation is not None and (elicitation.form is not None or elicitation.url is None)
        is_modern = self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        return has_forms and not self.identity.anonymous and (is_modern or self.ctx.session.can_send_request)

    async def _attest(self, handle: str, args: dict[str, Any], approval: str, answer: Any) -> _Result | None:
        """Record the answer of the user; return the refusal, or None if the user approved the call."""
        action = getattr(answer, "action", "cancel")
        approved = action == "accept" and (getattr(answer, "content", None) or {}).get("approve") is True
        if action == "cancel":
            text = texts.approval_refusal(approval, {}, self.source.approve_with)
            return _failure(text, "confirmation_required", "The user did not decide", {})
        await self.source.attest(self.identity, handle, args, approval, approved=approved)
        if approved:
            return None
        text = "The user declined this call. Do not repeat it; ask the user what to do instead."
        return _failure(text, "confirmation_invalid", text, {"reason": "denied"})

    async def _run(self, tool: Tool | str, args: dict[str, Any], key: str | None, approval: str | None) -> _Result:
        reports: asyncio.Queue[ProgressPayload | None] = asyncio.Queue()
        sending = asyncio.create_task(self._send_progress(reports))
        try:
            outcome = await self.client.invoke(
                tool, args, request_key=key, approval=approval, apply=False, on_progress=reports.put_nowait
            )
            reports.put_nowait(None)
            await sending
        finally:
            sending.cancel()
        return _outcome(outcome, direct=self.options.direct is not None)

    async def _send_progress(self, reports: asyncio.Queue[ProgressPayload | None]) -> None:
        last = -1.0
        while (report := await reports.get()) is not None:
            last = max(last + 0.001, float(report.percent or 0))  # MCP demands that it increases
            await self.ctx.session.report_progress(last, 100, report.detail or report.status)

    async def _explain(self, args: dict[str, Any]) -> _Result:
        handle, name, intent = args.get("handle"), args.get("tool"), args.get("intent")
        params, facts = args.get("params"), args.get("facts") or ()
        if handle is not None:
            inputs = await self.source.offer_inputs(self.identity, handle)
            if inputs is None:
                raise RequestRefused("macro_not_found", "there is no such offer; pass tool and intent instead")
            name, intent, params, facts = inputs.tool, inputs.intent.name, inputs.intent.params, inputs.facts
        if name is None or intent is None:
            raise RequestRefused("schema_validation_failed", "pass a handle, or tool and intent")
        explanation: Derivation | WhyNot
        content: dict[str, Any] = {"tool": name}
        if args["question"] == "why":
            options = Options(include_proof_hints=True)
            found = await self.client.evaluate(intent, params, facts, options=options, level="full", from_state="none")
            if name not in found:
                raise RequestRefused("not_offered", f"{name} is not offered now; ask why_not")
            explanation = msgspec.structs.replace(await self.client.why(found[name]), macro_id=name)
        else:
            explanation = await self.client.why_not(name, intent, params, facts)
            content["would_unlock"] = [list(facts) for facts in explanation.would_unlock]
        return _success(str(explanation), {**content, "text": str(explanation)})


def _success(text: str, content: dict[str, Any]) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=escape_invisible(text))], structured_content=content)


def _failure(text: str, code: str, message: str, details: Mapping[str, Any]) -> types.CallToolResult:
    error = {"code": code, "message": message, **({"details": dict(details)} if details else {})}
    result = _success(text, {"error": error})
    return result.model_copy(update={"is_error": True})


def _outcome(outcome: InvocationResult, *, direct: bool) -> types.CallToolResult:
    if direct:
        return _success(texts.invocation_text(outcome), outcome.result)
    suggestions = [{"intent": intent.name, "facts": list(outcome.continuation_facts)} for intent in outcome.suggestions]
    content = {"result": outcome.result, "summary": outcome.summary, "next": suggestions}
    return _success(texts.invocation_text(outcome), content)


def _direct_tool(tool: Tool) -> types.Tool:
    is_read_only = tool.effects == ("none",)
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema={"type": "object", **(tool.input_schema or {})},
        annotations=types.ToolAnnotations(
            read_only_hint=is_read_only,
            destructive_hint=not is_read_only and tool.reversible is not True,
            idempotent_hint=tool.is_repeatable,
            open_world_hint=not _CLOSED_WORLD.issuperset(tool.effects or ()),
        ),
    )


def _ttl_ms(tools: list[Tool]) -> int:
    """Return how long the list may be cached: at most until the first tool stops being valid."""
    ends = [
        read_instant(tool.definition.validity.expires_at) // 1_000_000
        for tool in tools
        if tool.definition.validity is not UNSET and tool.definition.validity.expires_at is not UNSET
    ]
    return max(0, min([_TTL_MS, *(end - time.time_ns() // 1_000_000 for end in ends)]))

"""An MCP server without an SDK, with the tools, resources and prompts that the conformance suite asks for.

It speaks both eras on standard streams: ``python server.py``. Requests are answered in threads, so that a tool can wait
for an answer of the client.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from queue import Queue
from typing import Any, Final

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
META: Final = "io.modelcontextprotocol/"
INFO: Final = {"name": "fixture", "version": "1"}
PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV: Final = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAgD4AAAB9AAACABAAZGF0YQAAAAA="
HINTS: Final = {"readOnlyHint": True, "openWorldHint": False}
Json = dict[str, Any]


class Failure(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, **({} if data is None else {"data": data})}


def text(value: str) -> Json:
    return {"type": "text", "text": value}


def image() -> Json:
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


def embedded(uri: str, kind: str, content: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": content}}


def form(message: str, **properties: Json) -> Json:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def sampling(prompt: str) -> Json:
    messages = [{"role": "user", "content": text(prompt)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 100}}


ROOTS: Final[Json] = {"method": "roots/list", "params": {}}
STRING: Final[Json] = {"type": "string"}
NEEDS: Final = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


class Server:
    """The state of a process, and its standard streams."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: dict[str, Queue[Json]] = {}
        self.extra_tools: list[str] = []
        self.extra_prompts: list[str] = []
        self.subscriptions: dict[Any, Json] = {}

    def send(self, message: Json) -> None:
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def notify(self, method: str, **params: Any) -> None:
        self.send({"method": method, "params": params})

    def ask(self, request: Json) -> Json:
        """Send a request to the client, in the era with sessions, and return the result."""
        name = f"ask-{len(self.waiting)}"
        self.waiting[name] = Queue()
        self.send({"id": name, **request})
        answer = self.waiting[name].get(timeout=20)
        result: Json = answer.get("result") or answer
        return result

    def change(self, kind: str) -> None:
        for request_id, kinds in list(self.subscriptions.items()):
            if kinds.get(f"{kind}ListChanged"):
                self.notify(f"notifications/{kind}/list_changed", _meta={f"{META}subscriptionId": request_id})

    def receive(self, message: Json) -> None:
        if "method" not in message:
            self.waiting[message["id"]].put(message)
        elif message["method"] == "notifications/cancelled":
            self.subscriptions.pop(message["params"]["requestId"], None)
        elif "id" in message:
            threading.Thread(target=self.respond, args=(message,), daemon=True).start()

    def respond(self, message: Json) -> None:
        params = message.get("params") or {}
        request = Request(self, message["id"], params)
        try:
            result = request.dispatch(message["method"])
        except Failure as failure:
            self.send({"id": message["id"], "error": failure.error})
            return
        if result is None:
            return
        if request.is_modern:
            result = {"resultType": "complete", **result}
            result["_meta"] = {f"{META}serverInfo": INFO}
            if message["method"] in CACHED:
                result |= {"ttlMs": 1000, "cacheScope": "private"}
        self.send({"id": message["id"], "result": result})


CACHED: Final = (
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "server/discover",
    "tools/list",
)
CAPABILITIES: Final[Json] = {
    "completions": {},
    "logging": {},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True},
    "tools": {"listChanged": True},
}


class Request:
    """One request. ``params`` are those of the client."""

    def __init__(self, server: Server, request_id: Any, params: Json) -> None:
        self.server, self.id, self.params = server, request_id, params
        self.meta: Json = params.get("_meta") or {}
        self.is_modern = f"{META}protocolVersion" in self.meta

    def dispatch(self, method: str) -> Json | None:
        if (self.is_modern and method in ("initialize", "ping", "logging/setLevel")) or method not in METHODS:
            raise Failure(-32601, "Method not found")
        if self.is_modern and method in ("resources/subscribe", "resources/unsubscribe"):
            raise Failure(-32601, "Method not found")
        return METHODS[method](self)

    def can(self, capability: str) -> bool:
        return capability in self.meta.get(f"{META}clientCapabilities", {})

    def input(self, state: str = "", **requests: Json) -> Json | None:
        """Return a result that demands the inputs which the client has not sent, or None if it has sent all."""
        responses = self.params.get("inputResponses")
        if not isinstance(responses, dict | None):
            raise Failure(-32602, "inputResponses must be an object")
        sent = {name for name, value in (responses or {}).items() if isinstance(value, dict)}
        if sent.issuperset(requests):
            return None
        return {"resultType": "input_required", "inputRequests": requests} | ({"requestState": state} if state else {})

    # tools

    def list_tools(self) -> Json:
        names = [*TOOLS, *self.server.extra_tools]
        return {"tools": [_definition(name) for name in names]}

    def call_tool(self) -> Json:
        name = self.params.get("name")
        if name not in TOOLS:
            raise Failure(-32602, f"Unknown tool: {name}")
        result = TOOLS[name](self, self.params.get("arguments") or {})
        return result if isinstance(result, dict) else {"content": result}

    def image(self, _: Json) -> list[Json]:
        return [image()]

    def mixed(self, _: Json) -> list[Json]:
        return [text("Multiple"), image(), embedded("test://mixed-content-resource", "application/json", "{}")]

    def log(self, _: Json) -> list[Json]:
        for step in ("started", "processing", "completed"):
            if not self.is_modern or f"{META}logLevel" in self.meta:
                self.server.notify("notifications/message", level="info", data=step)
            time.sleep(0.05)
        return [text("logged")]

    def progress(self, _: Json) -> list[Json]:
        for done in (0, 50, 100):
            if "progressToken" in self.meta:
                token = self.meta["progressToken"]
                self.server.notify("notifications/progress", progressToken=token, progress=done, total=100)
            time.sleep(0.05)
        return [text("done")]

    def sample(self, args: Json) -> list[Json]:
        if self.is_modern:
            raise Failure(-32602, "There are no requests of servers in this revision")
        return [text(f"LLM response: {json.dumps(self.server.ask(sampling(args['prompt'])))}")]

    def elicit(self, args: Json) -> list[Json]:
        if self.is_modern:
            raise Failure(-32602, "There are no requests of servers in this revision")
        asked = form(args["message"], username=STRING, email=STRING)
        return [text(f"User response: {json.dumps(self.server.ask(asked))}")]

    def elicit_defaults(self, _: Json) -> list[Json]:
        asked = form(
            "Defaults",
            name={**STRING, "default": "John Doe"},
            age={"type": "integer", "default": 30},
            score={"type": "number", "default": 95.5},
            status={**STRING, "enum": ["active", "inactive", "pending"], "default": "active"},
            verified={"type": "boolean", "default": True},
        )
        return [text(f"Elicitation completed: {json.dumps(self.server.ask(asked))}")]

    def elicit_enums(self, _: Json) -> list[Json]:
        options = ["option1", "option2", "option3"]
        titled = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
        asked = form(
            "Enums",
            untitledSingle={**STRING, "enum": options},
            titledSingle={**STRING, "oneOf": titled},
            legacyEnum={**STRING, "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
            untitledMulti={"type": "array", "items": {**STRING, "enum": options}},
            titledMulti={"type": "array", "items": {"anyOf": titled}},
        )
        return [text(f"Elicitation completed: {json.dumps(self.server.ask(asked))}")]

    def need_sampling(self, _: Json) -> list[Json]:
        if not self.can("sampling"):
            raise Failure(-32021, "sampling is needed", {"requiredCapabilities": {"sampling": {}}})
        return [text("sampling")]

    def change_tools(self, _: Json) -> list[Json]:
        self.server.extra_tools = [] if self.server.extra_tools else ["test_extra"]
        self.server.change("tools")
        return [text("changed")]

    def change_prompts(self, _: Json) -> list[Json]:
        self.server.extra_prompts = [] if self.server.extra_prompts else ["test_extra"]
        self.server.change("prompts")
        return [text("changed")]

    def ask_name(self, _: Json) -> Any:
        return self.input(user_name=form("What is your name?", name=STRING)) or [text("Hello")]

    def ask_model(self, _: Json) -> Any:
        return self.input(capital_question=sampling("What is the capital of France?")) or [text("Paris")]

    def ask_roots(self, _: Json) -> Any:
        return self.input(client_roots=ROOTS) or [text(json.dumps(self.params["inputResponses"]))]

    def ask_all(self, _: Json) -> Any:
        name = form("What is your name?", name=STRING)
        return self.input("all", user_name=name, greeting=sampling("Greet"), client_roots=ROOTS) or [text("all")]

    def ask_confirmation(self, _: Json) -> Any:
        asked = self.input("confirming", confirm=form("Please confirm", ok={"type": "boolean"}))
        if asked is None and self.params.get("requestState") != "confirming":
            raise Failure(-32602, "requestState was not issued by this server")
        return asked or [text("state-ok")]

    def ask_twice(self, _: Json) -> Any:
        if self.params.get("requestState") == "second":
            return self.input("second", step2=form("Step 2", color=STRING)) or [text("done")]
        first = self.input("first", step1=form("Step 1", name=STRING))
        return first or {**(self.input("second", step2=form("Step 2", color=STRING)) or {})}

    def ask_what_can_be_answered(self, _: Json) -> Any:
        requests = {"name": form("What is your name?", name=STRING), "model": sampling("Greet"), "roots": ROOTS}
        able = {name: request for name, request in requests.items() if self.can(NEEDS[request["method"]])}
        return self.input("able", **able) or [text("able")]

    # everything else

    def list_prompts(self) -> Json:
        arguments = {
            "test_prompt_with_arguments": ("arg1", "arg2"),
            "test_prompt_with_embedded_resource": ("resourceUri",),
        }
        names = [
            "test_simple_prompt",
            "test_prompt_with_arguments",
            "test_prompt_with_embedded_resource",
            "test_prompt_with_image",
            "test_input_required_result_prompt",
            *self.server.extra_prompts,
        ]
        found = [
            {
                "name": name,
                "description": f"Prompt {name}",
                "arguments": [{"name": argument, "required": True} for argument in arguments.get(name, ())],
            }
            for name in names
        ]
        return {"prompts": found}

    def get_prompt(self) -> Json:
        name, args = self.params["name"], self.params.get("arguments") or {}
        if name == "test_input_required_result_prompt":
            asked = self.input(user_context=form("Which context?", context=STRING))
            if asked is not None:
                return asked
        first = {
            "test_prompt_with_embedded_resource": lambda: embedded(args["resourceUri"], "text/plain", "Embedded"),
            "test_prompt_with_image": image,
        }.get(name)
        said = [first()] if first is not None else []
        said.append(text(f"{name}: {', '.join(f'{key}={value!r}' for key, value in args.items())}"))
        return {"messages": [{"role": "user", "content": content} for content in said]}

    def list_resources(self) -> Json:
        named = {"test://static-text": "text/plain", "test://static-binary": "image/png"}
        return {"resources": [{"uri": uri, "name": uri, "mimeType": kind} for uri, kind in named.items()]}

    def read_resource(self) -> Json:
        uri = self.params["uri"]
        if uri == "test://static-binary":
            return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PNG}]}
        if uri == "test://static-text":
            return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "This is a static text."}]}
        if uri.startswith("test://template/"):
            content = json.dumps({"id": uri.split("/")[3], "templateTest": True, "data": uri})
            return {"contents": [{"uri": uri, "mimeType": "application/json", "text": content}]}
        raise Failure(-32602 if self.is_modern else -32002, "Resource not found", {"uri": uri})

    def listen(self) -> None:
        kinds = self.params["notifications"]
        self.server.subscriptions[self.id] = kinds
        meta = {f"{META}subscriptionId": self.id}
        self.server.notify("notifications/subscriptions/acknowledged", notifications=kinds, _meta=meta)


def _definition(name: str) -> Json:
    schema = SCHEMAS.get(name, {"type": "object", "properties": {}})
    return {"name": name, "description": f"Tool {name}", "inputSchema": schema, "annotations": HINTS}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


SCHEMAS: Final[dict[str, Json]] = {
    "test_sampling": _object(prompt=STRING),
    "test_elicitation": _object(message=STRING),
    "test_custom_headers": _object(region={**STRING, "x-mcp-header": "Region"}),
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": STRING, "city": STRING},
            }
        },
        "properties": {
            "name": STRING,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": STRING,
            "email": STRING,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}
TOOLS: Final[dict[str, Callable[[Request, Json], Any]]] = {
    "test_simple_text": lambda *_: [text("This is a simple text response for testing.")],
    "test_image_content": Request.image,
    "test_audio_content": lambda *_: [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": lambda *_: [embedded("test://embedded-resource", "text/plain", "Embedded")],
    "test_multiple_content_types": Request.mixed,
    "test_tool_with_logging": Request.log,
    "test_logging_tool": Request.log,
    "test_error_handling": lambda *_: {"content": [text("It fails on purpose")], "isError": True},
    "test_tool_with_progress": Request.progress,
    "test_sampling": Request.sample,
    "test_elicitation": Request.elicit,
    "test_elicitation_sep1034_defaults": Request.elicit_defaults,
    "test_elicitation_sep1330_enums": Request.elicit_enums,
    "test_reconnection": lambda *_: [text("There is no stream to resume")],
    "test_custom_headers": lambda _, args: [text(json.dumps(args))],
    "test_missing_capability": Request.need_sampling,
    "test_streaming_elicitation": Request.progress,
    "test_trigger_tool_change": Request.change_tools,
    "test_trigger_prompt_change": Request.change_prompts,
    "test_input_required_result_elicitation": Request.ask_name,
    "test_input_required_result_sampling": Request.ask_model,
    "test_input_required_result_list_roots": Request.ask_roots,
    "test_input_required_result_multiple_inputs": Request.ask_all,
    "test_input_required_result_request_state": Request.ask_confirmation,
    "test_input_required_result_tampered_state": Request.ask_confirmation,
    "test_input_required_result_multi_round": Request.ask_twice,
    "test_input_required_result_capabilities": Request.ask_what_can_be_answered,
    "json_schema_2020_12_tool": lambda _, args: [text(json.dumps(args))],
}
METHODS: Final[dict[str, Callable[[Request], Json | None]]] = {
    "initialize": lambda _: {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": INFO},
    "server/discover": lambda _: {"supportedVersions": [MODERN], "capabilities": CAPABILITIES},
    "ping": lambda _: {},
    "logging/setLevel": lambda _: {},
    "completion/complete": lambda _: {"completion": {"values": ["paris"], "total": 1, "hasMore": False}},
    "resources/subscribe": lambda _: {},
    "resources/unsubscribe": lambda _: {},
    "resources/list": Request.list_resources,
    "resources/templates/list": lambda _: {
        "resourceTemplates": [{"uriTemplate": "test://template/{id}/data", "name": "template"}]
    },
    "resources/read": Request.read_resource,
    "prompts/list": Request.list_prompts,
    "prompts/get": Request.get_prompt,
    "tools/list": Request.list_tools,
    "tools/call": Request.call_tool,
    "subscriptions/listen": Request.listen,
}


def main() -> None:
    server = Server()
    for line in sys.stdin:
        server.receive(json.loads(line))


if __name__ == "__main__":
    main()

"""Checks of the manifest and the transports. The ids name requirements of ``docs/reference/requirements.md``."""

from __future__ import annotations

import asyncio
from collections import Counter
from urllib.parse import urlsplit

from manglecp.conformance.bench import BUSY_CODES, HTTP, SESSIONS, Bench, Untested, check, encode, message
from manglecp.conformance.connections import StdioConnection, get_objects, get_path


@check("CONF-01", "MANI-05", needs_credential=False)
async def level_is_declared(b: Bench) -> None:
    """The manifest declares the level that is tested, or a higher one"""
    declared = get_path(b.manifest, "protocol", "conformance_level")
    is_enough = isinstance(declared, int) and declared >= b.report.level
    b.note("CONF-01", is_enough, f"conformance_level {b.report.level} or more", declared)


@check("MANI-13", "MANI-12", needs_credential=False)
async def intents_are_listed(b: Bench) -> None:
    """The manifest lists intents, each once"""
    intents = b.manifest.get("intents")
    b.note("MANI-13", isinstance(intents, list) and bool(intents), "the primary intents", intents)
    names = [intent.get("name") for intent in get_objects(b.manifest, "intents")]
    b.note("MANI-12", len(set(map(str, names))) == len(names), "each intent once", names)


@check("CONF-12", "MANI-16", "DATA-50", level=2, needs_credential=False)
async def predicates_are_described(b: Bench) -> None:
    """The manifest describes the predicates that intents need"""
    schemas = b.predicate_schemas
    if b.report.level == 3:
        b.note("CONF-12", bool(schemas), "predicate schemas in the manifest", schemas)
    described = {schema["predicate"] for schema in schemas}
    intents = get_objects(b.manifest, "intents")
    required = {name for intent in intents for name in intent.get("required_facts") or ()}
    undescribed = sorted(required - described)
    b.note("MANI-16", not undescribed, "a schema of each predicate that an intent requires", undescribed)
    for schema in schemas:
        lists = [schema[name] for name in ("arg_types", "arg_names") if schema.get(name)]
        holds = all(len(items) == schema["arity"] for items in lists)
        b.note("DATA-50", holds, "as many arg_types and arg_names as arguments", schema)


@check("CONF-12", level=3, needs_credential=False)
async def extensions_are_announced(b: Bench) -> None:
    """Rule coverage and structured facts are announced as extensions"""
    extensions = b.manifest.get("extensions")
    keys = list(extensions) if isinstance(extensions, dict) else []
    text = str(extensions)  # names and descriptions; the specification prescribes neither
    b.note("CONF-12", "coverage" in text, "an extension that announces rule coverage", keys)
    b.note("CONF-12", "structured" in text or "clause" in text, "an extension that announces structured facts", keys)


@check("MANI-20", "MANI-22", level=3, needs_credential=False)
async def external_predicates(b: Bench) -> None:
    """External predicates are described"""
    listed = get_path(b.manifest, "capabilities", "external_predicates")
    if not listed:
        raise Untested("the server declares no external predicates")
    for external in listed:
        is_described = isinstance(external, dict) and {"predicate", "arity", "description"} <= set(external)
        b.note("MANI-20", is_described, "predicate, arity and description", external)
        flag = external.get("deterministic", True) if isinstance(external, dict) else None
        b.note("MANI-22", isinstance(flag, bool), "deterministic as true or false", flag)


_UNKNOWN_INTENT = {"intent": {"name": "conformance_http"}}
_ORIGIN = "https://conformance.example"


@check("TRANS-10", "TRANS-29", "MANI-01", transports=HTTP, needs_credential=False)
async def well_known(b: Bench) -> None:
    """The manifest is at its well-known path, as a message"""
    connection = await b.http()
    response = await connection.http_request("GET", connection.manifest_url)
    b.note("TRANS-10", response.status_code == 200, "status 200", response.status_code)
    answer = await connection.open()
    b.note(("MANI-01", "TRANS-29"), answer.type == "manifest", "a message of the type manifest", answer)


@check("TRANS-11", "MANI-11", transports=HTTP, needs_credential=False)
async def endpoints(b: Bench) -> None:
    """The addresses end in /evaluate and /invoke"""
    connection = await b.http()
    for endpoint in ("evaluate", "invoke"):
        path = urlsplit(connection.endpoint_url(endpoint)).path
        b.note(("TRANS-11", "MANI-11"), path.endswith(f"/{endpoint}"), f"an address that ends in /{endpoint}", path)


@check("MANI-35", transports=HTTP, needs_credential=False)
async def caching(b: Bench) -> None:
    """The manifest can be cached, and revalidated with its ETag"""
    connection = await b.http()
    response = await connection.http_request("GET", connection.manifest_url)
    control, tag = response.headers.get("cache-control", ""), response.headers.get("etag")
    b.note("MANI-35", "max-age=" in control or "no-cache" in control, "Cache-Control max-age or no-cache", control)
    if not b.note("MANI-35", bool(tag), "an ETag", tag):
        return
    unchanged = await connection.http_request("GET", connection.manifest_url, headers={"if-none-match": str(tag)})
    holds = unchanged.status_code == 304 and not unchanged.content
    b.note("MANI-35", holds, "304 without a body", unchanged.status_code)
    changed = await connection.http_request("GET", connection.manifest_url, headers={"if-none-match": '"conformance"'})
    b.note("MANI-35", changed.status_code == 200, "200 for another tag", changed.status_code)


@check("TRANS-13", transports=HTTP)
async def bodies_are_json(b: Bench) -> None:
    """A body with a content type other than JSON is refused"""
    connection = await b.http()
    data = encode(message("intent_request", _UNKNOWN_INTENT))
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await connection.request(data, headers={"content-type": content_type})
        b.note("TRANS-13", answer.type == "error", f"an error for Content-Type: {content_type}", answer)
    answer = await connection.request(data, headers={"content-type": "application/json; charset=utf-8"})
    b.note("TRANS-13", answer.status not in (406, 415), "application/json with a charset accepted", answer)
    answer = await connection.request(data, headers={"accept": "text/html, application/json;q=0.5"})
    b.note("TRANS-13", answer.status not in (406, 415), "an Accept that includes application/json accepted", answer)


@check("TRANS-14", "TRANS-15", transports=HTTP)
async def errors_are_messages(b: Bench) -> None:
    """An error is a message with a status of its own"""
    connection = await b.http()
    for data in (b"", b"{", encode(message("intent_request", {})), encode(message("x-none"))):
        answer = await connection.request(data)
        holds = answer.type == "error" and answer.status is not None and answer.status >= 400
        b.note(("TRANS-14", "TRANS-15"), holds, "an error message with an error status", answer)


@check("SEC-16", "WIRE-15", transports=HTTP)
async def no_session_messages(b: Bench) -> None:
    """There is no authenticate and no cancel on HTTP"""
    answer = await b.request(message("authenticate", {"scheme": "bearer", "token": "conformance"}))
    b.note("SEC-16", answer.type == "error", "an error for authenticate on HTTP", answer)
    answer = await b.request(message("cancel", {"request_id": "conformance"}, id=None))
    b.note("SEC-16", answer.type == "error", "an error for cancel on HTTP", answer)
    invoke_request = message("invoke_request", {"macro_id": "conformance-none", "args": {}})
    answer = await b.request(invoke_request, "evaluate")
    b.note("WIRE-15", answer.type == "error", "no invocation where intents are evaluated", answer)


@check("SEC-26", transports=HTTP)
async def nothing_lists_tools(b: Bench) -> None:
    """No address lists the tools"""
    connection = await b.http()
    credentials = b.plan.credentials.headers_of(b.plan.credentials.token)
    for endpoint in ("evaluate", "invoke"):
        endpoint_url = connection.endpoint_url(endpoint)
        parent = endpoint_url.rsplit("/", 1)[0]
        for url in (endpoint_url, f"{parent}/tools", f"{parent}/macros"):
            response = await connection.http_request("GET", url, headers=credentials)
            lists_tools = response.status_code < 400 and b"macro_id" in response.content
            b.note("SEC-26", not lists_tools, f"no list of tools at {url}", response.status_code)


@check("TRANS-22", transports=HTTP, needs_credential=False)
async def origins_with_credentials(b: Bench) -> None:
    """A server that requires authentication does not let in every origin"""
    b.require_auth()
    connection = await b.http()
    for method, url in (("GET", connection.manifest_url), ("OPTIONS", connection.endpoint_url("evaluate"))):
        headers = {"origin": _ORIGIN, "access-control-request-method": "POST"}
        response = await connection.http_request(method, url, headers=headers)
        allowed_origin = response.headers.get("access-control-allow-origin")
        b.note("TRANS-22", allowed_origin != "*", "no Access-Control-Allow-Origin: *", allowed_origin)


@check("SEC-37", transports=HTTP, needs_credential=False)
async def odd_requests(b: Bench) -> None:
    """Paths and methods that do not exist are errors of the client"""
    connection = await b.http()
    missing = await connection.http_request("GET", connection.endpoint_url("evaluate") + "/conformance-none")
    b.note("SEC-37", 400 <= missing.status_code < 500, "a status of 4xx for an unknown path", missing.status_code)
    deleted = await connection.http_request("DELETE", connection.endpoint_url("evaluate"))
    b.note("SEC-37", 400 <= deleted.status_code < 500, "a status of 4xx for an unknown method", deleted.status_code)


_CONCURRENT_REQUESTS = 20


async def _note_first_message(b: Bench, *rows: str) -> None:
    """Record for these rows and MANI-01 whether the first message of a new session is a manifest."""
    async with b.other_session() as connection:
        answer = connection.first
        assert answer is not None
        b.note((*rows, "MANI-01"), answer.type == "manifest", "the manifest", answer)


@check("TRANS-02", "TRANS-04", "TRANS-05", "MANI-01", transports=("websocket",), needs_credential=False)
async def manifest_first_on_websocket(b: Bench) -> None:
    """The manifest is the first message of each connection, in one text frame"""
    await _note_first_message(b, "TRANS-02")
    b.note(("TRANS-04", "TRANS-05"), True)  # otherwise InvalidMessage was raised


@check("TRANS-25", "TRANS-23", "MANI-01", transports=("stdio",), needs_credential=False)
async def manifest_first(b: Bench) -> None:
    """The manifest is the first line"""
    await _note_first_message(b, "TRANS-25", "TRANS-23")


@check("TRANS-33", "TRANS-34", "WIRE-04", transports=SESSIONS, time_factor=2)
async def pipelining(b: Bench) -> None:
    """Requests sent without waiting are all answered, each once"""
    connection = await b.session()
    planned = await b.usable_intent()
    sent = [message("intent_request", planned.payload()) for _ in range(_CONCURRENT_REQUESTS)]
    sent[3]["payload"] = {}  # one request is invalid
    for request in sent:
        await connection.write(encode(request))
    answers = [await connection.next() for _ in sent]
    ids, sent_ids = Counter(str(answer.id) for answer in answers), Counter(str(request["id"]) for request in sent)
    b.note(("TRANS-33", "WIRE-04"), ids == sent_ids, "one terminal message for each id", ids - sent_ids)
    b.note("TRANS-33", not connection.repeated, "no second terminal message", connection.repeated)
    for answer in answers:
        type_ = "error" if answer.id == sent[3]["id"] else "intent_response"
        is_busy = answer.code in BUSY_CODES
        b.note("TRANS-34", answer.type == type_ or is_busy, f"{type_} for its own request", answer)


@check("TRANS-36", "TRANS-38", "ERR-32", level=2, transports=SESSIONS, time_factor=2)
async def cancelling(b: Bench) -> None:
    """A request that is cancelled has one terminal message: cancelled, or its answer"""
    connection = await b.session()
    planned = await b.usable_intent()
    sent = [message("intent_request", planned.payload()) for _ in range(_CONCURRENT_REQUESTS)]
    for request in sent:
        await connection.write(encode(request))
    for request in reversed(sent):
        await connection.write(encode(message("cancel", {"request_id": request["id"]}, id=None)))
    answers = [await connection.next() for _ in sent]
    ids, sent_ids = Counter(str(answer.id) for answer in answers), Counter(str(request["id"]) for request in sent)
    b.note(("TRANS-36", "TRANS-38"), ids == sent_ids, "one terminal message for each id", ids)
    answer = await b.evaluate(planned)
    b.note("TRANS-38", answer.type == "intent_response", "an answer to the next request", answer)
    b.note("TRANS-38", not connection.repeated, "no other terminal message", connection.repeated)
    for answer in answers:
        holds = answer.type == "intent_response" or answer.code in ("cancelled", *BUSY_CODES)
        b.note("TRANS-38", holds, "cancelled, or the answer", answer)
        if answer.code == "cancelled":
            b.note("ERR-32", answer.payload.get("recoverable") is False, "recoverable false", answer)


@check("TRANS-37", "TRANS-38", "ERR-32", "PROG-06", level=2, transports=SESSIONS, time_factor=3)
async def cancelling_runs(b: Bench) -> None:
    """An invocation that is cancelled has one terminal message"""
    for invocation in b.planned_invocations(lambda planned: planned.slow):
        macro_id = await b.macro_id(invocation)
        connection = await b.session()
        request = message("invoke_request", {"macro_id": macro_id, "args": dict(invocation.args)})
        await connection.write(encode(request))
        await asyncio.sleep(0.2)  # let the run begin
        await connection.write(encode(message("cancel", {"request_id": request["id"]}, id=None)))
        answer = await connection.next()
        b.note(("TRANS-38", "PROG-06"), answer.id == request["id"], "the id of the cancelled request", answer)
        if b.note("TRANS-37", answer.code == "cancelled", "a slow run that stops", answer):
            b.note("ERR-32", answer.payload.get("recoverable") is False, "recoverable false", answer)


@check("TRANS-26", "TRANS-27", "TRANS-23", "TRANS-24", transports=("stdio",), time_factor=2)
async def end_of_input(b: Bench) -> None:
    """At the end of its input the server answers the pending requests, and exits"""
    async with b.other_session() as connection:
        assert isinstance(connection, StdioConnection)
        request = message("intent_request", {"intent": {"name": "conformance_end"}})
        await connection.write(encode(request))
        connection.end_input()
        answer = await connection.next()
        b.note("TRANS-27", answer.id == request["id"], "the pending answer", answer)
        await connection.wait_closed()
        b.note("TRANS-27", not connection.unread, "nothing else after the end of the input", list(connection.unread))
        status = await connection.exit_status()
        b.note("TRANS-26", status == 0, "exit status 0", status)
        b.note(("TRANS-23", "TRANS-24"), True)  # otherwise InvalidMessage was raised

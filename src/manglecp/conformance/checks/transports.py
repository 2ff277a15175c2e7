"""Manifests, HTTP and sessions."""

from __future__ import annotations

import asyncio
from collections import Counter
from urllib.parse import urlsplit

from manglecp.conformance.bench import HTTP, SESSIONS, STDIO, WEBSOCKET, Bench, Untested, check, encode, message
from manglecp.conformance.connections import Answer, StdioConnection, member


@check("CONF-01", "MANI-05", access=False)
async def level_is_declared(b: Bench) -> None:
    """The manifest declares the level that is tested, or a higher one"""
    declared = member(b.manifest, "protocol", "conformance_level")
    enough = isinstance(declared, int) and declared >= b.report.level
    b.note("CONF-01", enough, f"conformance_level {b.report.level} or more", declared)


@check("MANI-13", "MANI-12", access=False)
async def intents_are_listed(b: Bench) -> None:
    """The manifest lists intents, and facts that it describes"""
    intents = b.manifest.get("intents")
    b.note("MANI-13", isinstance(intents, list) and bool(intents), "the primary intents", intents)
    named = [one.get("name") for one in intents if isinstance(one, dict)] if isinstance(intents, list) else []
    b.note("MANI-12", len(set(map(str, named))) == len(named), "each intent once", named)


@check("CONF-12", "MANI-16", "DATA-50", level=2, access=False)
async def predicates_are_described(b: Bench) -> None:
    """The manifest describes the predicates that intents need"""
    schemas = b.predicates
    if b.report.level == 3:
        b.note("CONF-12", bool(schemas), "predicate schemas in the manifest", schemas)
    known = {one.get("predicate") for one in schemas}
    needed = {
        name
        for one in b.manifest.get("intents") or ()
        if isinstance(one, dict)
        for name in one.get("required_facts") or ()
    }
    b.note("MANI-16", needed <= known, "a schema of each predicate that an intent requires", sorted(needed - known))
    for one in schemas:
        arity, fits = one.get("arity"), True
        for name in ("arg_types", "arg_names"):
            if one.get(name):
                fits = fits and len(one[name]) == arity
        b.note("DATA-50", fits, "as many arg_types and arg_names as arguments", one)


@check("CONF-12", level=3, access=False)
async def extensions_are_announced(b: Bench) -> None:
    """Rule coverage and structured facts are announced as extensions"""
    extensions = b.manifest.get("extensions")
    keys = [str(key) for key in extensions] if isinstance(extensions, dict) else []
    text = " ".join(keys) + " " + str(extensions)
    b.note("CONF-12", "coverage" in text, "an extension that announces rule coverage", keys)
    b.note("CONF-12", "structured" in text or "clause" in text, "one that announces structured facts", keys)


@check("MANI-20", "MANI-22", level=3, access=False)
async def external_predicates(b: Bench) -> None:
    """External predicates are described"""
    listed = member(b.manifest, "capabilities", "external_predicates")
    if not listed:
        raise Untested("the server declares no external predicates")
    for one in listed:
        fits = isinstance(one, dict) and {"predicate", "arity", "description"} <= set(one)
        b.note("MANI-20", fits, "predicate, arity and description", one)
        flag = one.get("deterministic", True) if isinstance(one, dict) else None
        b.note("MANI-22", isinstance(flag, bool), "deterministic as true or false", flag)


_REQUEST = {"intent": {"name": "conformance_http"}}
_ORIGIN = "https://conformance.example"


@check("TRANS-10", "TRANS-29", "MANI-01", transports=HTTP, access=False)
async def well_known(b: Bench) -> None:
    """The manifest is at its well-known path, as a message"""
    connection = await b.http()
    response = await connection.request("GET", connection.manifest_url)
    b.note("TRANS-10", response.status_code == 200, "status 200", response.status_code)
    answer = await connection.open()
    b.note(("MANI-01", "TRANS-29"), answer.type == "manifest", "a message of the type manifest", answer)


@check("TRANS-11", "MANI-11", transports=HTTP, access=False)
async def endpoints(b: Bench) -> None:
    """The addresses end in /evaluate and /invoke"""
    connection = await b.http()
    for end in ("evaluate", "invoke"):
        path = urlsplit(connection.address(end)).path
        b.note(("TRANS-11", "MANI-11"), path.endswith(f"/{end}"), f"an address that ends in /{end}", path)


@check("MANI-35", transports=HTTP, access=False)
async def caching(b: Bench) -> None:
    """The manifest can be kept, and asked for again with its tag"""
    connection = await b.http()
    response = await connection.request("GET", connection.manifest_url)
    control, tag = response.headers.get("cache-control", ""), response.headers.get("etag")
    b.note("MANI-35", "max-age=" in control or "no-cache" in control, "Cache-Control max-age or no-cache", control)
    if not b.note("MANI-35", bool(tag), "an ETag", tag):
        return
    again = await connection.request("GET", connection.manifest_url, headers={"if-none-match": str(tag)})
    b.note("MANI-35", again.status_code == 304 and not again.content, "304 without a body", again.status_code)
    other = await connection.request("GET", connection.manifest_url, headers={"if-none-match": '"conformance"'})
    b.note("MANI-35", other.status_code == 200, "200 for another tag", other.status_code)


@check("TRANS-13", transports=HTTP)
async def bodies_are_json(b: Bench) -> None:
    """A body with a content type other than JSON is refused"""
    connection = await b.http()
    data = encode(message("intent_request", _REQUEST))
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await connection.ask(data, headers={"content-type": kind})
        b.note("TRANS-13", answer.type == "error", f"an error for Content-Type: {kind}", answer)
    answer = await connection.ask(data, headers={"content-type": "application/json; charset=utf-8"})
    b.note("TRANS-13", answer.status not in (406, 415), "application/json with a charset taken", answer)
    answer = await connection.ask(data, headers={"accept": "text/html, application/json;q=0.5"})
    b.note("TRANS-13", answer.status not in (406, 415), "an Accept that includes application/json taken", answer)


@check("TRANS-14", "TRANS-15", transports=HTTP)
async def errors_are_messages(b: Bench) -> None:
    """An error is a message with a status of its own"""
    connection = await b.http()
    for data in (b"", b"{", encode(message("intent_request", {})), encode(message("x-none"))):
        answer = await connection.ask(data)
        fits = answer.type == "error" and answer.status is not None and answer.status >= 400
        b.note(("TRANS-14", "TRANS-15"), fits, "an error message with an error status", answer)


@check("SEC-16", "WIRE-15", transports=HTTP)
async def no_session_messages(b: Bench) -> None:
    """There is no authenticate and no cancel on HTTP"""
    answer = await b.ask(message("authenticate", {"scheme": "bearer", "token": "conformance"}))
    b.note("SEC-16", answer.type == "error", "an error for authenticate on HTTP", answer)
    answer = await b.ask(message("cancel", {"request_id": "conformance"}, id=None))
    b.note("SEC-16", answer.type == "error", "an error for cancel on HTTP", answer)
    wrong = message("invoke_request", {"macro_id": "conformance-none", "args": {}})
    answer = await b.ask(wrong, "evaluate")
    b.note("WIRE-15", answer.type == "error", "no invocation where intents are evaluated", answer)


@check("SEC-26", transports=HTTP)
async def nothing_lists_tools(b: Bench) -> None:
    """No address lists the tools"""
    connection = await b.http()
    for end in ("evaluate", "invoke"):
        address = connection.address(end)
        for url in (address, address.rsplit("/", 1)[0] + "/tools", address.rsplit("/", 1)[0] + "/macros"):
            response = await connection.request("GET", url, headers=b.plan.credentials.headers)
            listed = response.status_code < 400 and b"macro_id" in response.content
            b.note("SEC-26", not listed, f"no list of tools at {url}", response.status_code)


@check("TRANS-22", transports=HTTP, access=False)
async def origins_with_credentials(b: Bench) -> None:
    """A server that requires authentication does not let in every origin"""
    b.require_auth()
    connection = await b.http()
    for method, url in (("GET", connection.manifest_url), ("OPTIONS", connection.address("evaluate"))):
        headers = {"origin": _ORIGIN, "access-control-request-method": "POST"}
        response = await connection.request(method, url, headers=headers)
        allowed = response.headers.get("access-control-allow-origin")
        b.note("TRANS-22", allowed != "*", "no Access-Control-Allow-Origin: *", allowed)


@check("SEC-37", transports=HTTP, access=False)
async def odd_requests(b: Bench) -> None:
    """Paths and methods that do not exist are errors of the client"""
    connection = await b.http()
    missing = await connection.request("GET", connection.address("evaluate") + "/conformance-none")
    b.note("SEC-37", 400 <= missing.status_code < 500, "a status of 4xx for an unknown path", missing.status_code)
    deleted = await connection.request("DELETE", connection.address("evaluate"))
    b.note("SEC-37", 400 <= deleted.status_code < 500, "a status of 4xx for an unknown method", deleted.status_code)


_MANY = 20


async def _manifest_first(b: Bench, *rows: str) -> None:
    async with b.other_session() as connection:
        answer = connection.first
        assert answer is not None
        b.note((*rows, "MANI-01"), answer.type == "manifest", "the manifest", answer)


@check("TRANS-02", "TRANS-04", "TRANS-05", "MANI-01", transports=WEBSOCKET, access=False)
async def manifest_first_on_websocket(b: Bench) -> None:
    """The manifest is the first message of each connection, in one text frame"""
    await _manifest_first(b, "TRANS-02")
    b.note(("TRANS-04", "TRANS-05"), True, "", "")  # anything else would have been no message


@check("TRANS-25", "TRANS-23", "MANI-01", transports=STDIO, access=False)
async def manifest_first(b: Bench) -> None:
    """The manifest is the first line"""
    await _manifest_first(b, "TRANS-25", "TRANS-23")


@check("TRANS-33", "TRANS-34", "WIRE-04", transports=SESSIONS, patience=2)
async def pipelining(b: Bench) -> None:
    """Requests sent without waiting are all answered, each once"""
    connection = await b.session()
    planned = await b.intent()
    sent = [message("intent_request", planned.payload()) for _ in range(_MANY)]
    sent[3]["payload"] = {}
    for one in sent:
        await connection.write(encode(one))
    answers: list[Answer] = [await connection.next() for _ in sent]
    came, wanted = Counter(str(one.message.get("id")) for one in answers), Counter(str(one["id"]) for one in sent)
    b.note(("TRANS-33", "WIRE-04"), came == wanted, "one terminal message for each id", came - wanted)
    b.note("TRANS-33", not connection.repeated, "no second one", connection.repeated)
    for answer in answers:
        wrong = answer.message.get("id") == sent[3]["id"]
        kind = "error" if wrong else "intent_response"
        busy = answer.code in ("rate_limited", "server_not_ready")
        b.note("TRANS-34", answer.type == kind or busy, f"{kind} for its own request", answer)


@check("TRANS-36", "TRANS-38", "ERR-32", level=2, transports=SESSIONS, patience=2)
async def cancelling(b: Bench) -> None:
    """A request that is cancelled has one terminal message: cancelled, or its answer"""
    connection = await b.session()
    planned = await b.intent()
    sent = [message("intent_request", planned.payload()) for _ in range(_MANY)]
    for one in sent:
        await connection.write(encode(one))
    for one in reversed(sent):
        await connection.write(encode(message("cancel", {"request_id": one["id"]}, id=None)))
    answers = [await connection.next() for _ in sent]
    came = Counter(str(one.message.get("id")) for one in answers)
    rows = ("TRANS-36", "TRANS-38")
    b.note(rows, came == Counter(str(one["id"]) for one in sent), "one terminal message for each id", came)
    after = await b.evaluate(planned)
    b.note("TRANS-38", after.type == "intent_response", "an answer to the next request", after)
    b.note("TRANS-38", not connection.repeated, "no other terminal message", connection.repeated)
    for answer in answers:
        fits = answer.type == "intent_response" or answer.code in ("cancelled", "rate_limited", "server_not_ready")
        b.note("TRANS-38", fits, "cancelled, or the answer", answer)
        if answer.code == "cancelled":
            b.note("ERR-32", answer.payload.get("recoverable") is False, "recoverable false", answer)


@check("TRANS-37", "TRANS-38", "ERR-32", "PROG-06", level=2, transports=SESSIONS, patience=3)
async def cancelling_runs(b: Bench) -> None:
    """An invocation that is cancelled has one terminal message"""
    for invocation in b.invocations(lambda one: one.slow):
        macro_id = await b.macro_id(invocation)
        connection = await b.session()
        request = message("invoke_request", {"macro_id": macro_id, "args": dict(invocation.args)})
        await connection.write(encode(request))
        await asyncio.sleep(0.2)
        await connection.write(encode(message("cancel", {"request_id": request["id"]}, id=None)))
        answer = await connection.next()
        own = answer.message.get("id") == request["id"]
        b.note(("TRANS-38", "PROG-06"), own, "the id of what was cancelled", answer)
        stopped = answer.code == "cancelled"
        b.note("TRANS-37", stopped, "a slow run that stops", answer)
        if stopped:
            b.note("ERR-32", answer.payload.get("recoverable") is False, "recoverable false", answer)


@check("TRANS-26", "TRANS-27", "TRANS-23", "TRANS-24", transports=STDIO, patience=2)
async def end_of_input(b: Bench) -> None:
    """At the end of its input the server answers what is pending, and ends"""
    async with b.other_session() as connection:
        assert isinstance(connection, StdioConnection)
        request = message("intent_request", {"intent": {"name": "conformance_end"}})
        await connection.write(encode(request))
        connection.end_input()
        answer = await connection.next()
        b.note("TRANS-27", answer.message.get("id") == request["id"], "the pending answer", answer)
        await connection.wait_closed()
        b.note("TRANS-27", not connection.unread, "nothing else after the end of the input", connection.unread)
        status = await connection.exit_status()
        b.note("TRANS-26", status == 0, "exit status 0", status)
        b.note(("TRANS-23", "TRANS-24"), True, "", "")

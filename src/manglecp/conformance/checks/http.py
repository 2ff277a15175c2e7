"""What only HTTP has: paths, status codes, headers, caching and other origins."""

from __future__ import annotations

from urllib.parse import urlsplit

from manglecp.conformance.bench import Bench, Untested, dumped, message
from manglecp.conformance.registry import HTTP, check

_REQUEST = {"intent": {"name": "conformance_http"}}
_ORIGIN = "https://conformance.example"


@check("TRANS-10", "TRANS-29", "MANI-01", transports=HTTP, access=False)
async def well_known(b: Bench) -> None:
    """The manifest is at its well-known path, as a message"""
    line = await b.http()
    response = await line.request("GET", line.manifest_url)
    b.that("TRANS-10", response.status_code == 200, "status 200", response.status_code)
    answer = await line.open()
    b.that(("MANI-01", "TRANS-29"), answer.type == "manifest", "a message of the type manifest", answer)
    b.that("MANI-01", answer.message.get("id", "absent") is None, "id null", answer.message.get("id", "no id"))


@check("TRANS-11", "MANI-11", transports=HTTP, access=False)
async def endpoints(b: Bench) -> None:
    """The addresses end in /evaluate and /invoke"""
    line = await b.http()
    for end in ("evaluate", "invoke"):
        path = urlsplit(line.address(end)).path
        b.that(("TRANS-11", "MANI-11"), path.endswith(f"/{end}"), f"an address that ends in /{end}", path)


@check("MANI-35", transports=HTTP, access=False)
async def caching(b: Bench) -> None:
    """The manifest can be kept, and asked for again with its tag"""
    line = await b.http()
    response = await line.request("GET", line.manifest_url)
    control, tag = response.headers.get("cache-control", ""), response.headers.get("etag")
    b.that("MANI-35", "max-age=" in control or "no-cache" in control, "Cache-Control max-age or no-cache", control)
    if not b.that("MANI-35", bool(tag), "an ETag", tag):
        return
    again = await line.request("GET", line.manifest_url, headers={"if-none-match": str(tag)})
    b.that("MANI-35", again.status_code == 304 and not again.content, "304 without a body", again.status_code)
    other = await line.request("GET", line.manifest_url, headers={"if-none-match": '"conformance"'})
    b.that("MANI-35", other.status_code == 200, "200 for another tag", other.status_code)


@check("TRANS-13", transports=HTTP)
async def bodies_are_json(b: Bench) -> None:
    """A body that says it is something else than JSON is refused"""
    line = await b.http()
    data = dumped(message("intent_request", _REQUEST))
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await line.ask(data, headers={"content-type": kind})
        b.that("TRANS-13", answer.type == "error", f"an error for Content-Type: {kind}", answer)
    answer = await line.ask(data, headers={"content-type": "application/json; charset=utf-8"})
    b.that("TRANS-13", answer.status not in (406, 415), "application/json with a charset taken", answer)
    answer = await line.ask(data, headers={"accept": "text/html, application/json;q=0.5"})
    b.that("TRANS-13", answer.status not in (406, 415), "an Accept that includes application/json taken", answer)


@check("TRANS-14", "TRANS-15", transports=HTTP)
async def errors_are_messages(b: Bench) -> None:
    """An error is a message with a status of its own"""
    line = await b.http()
    for data in (b"", b"{", dumped(message("intent_request", {})), dumped(message("x-none"))):
        answer = await line.ask(data)
        fits = answer.type == "error" and answer.status is not None and answer.status >= 400
        b.that(("TRANS-14", "TRANS-15"), fits, "an error message with an error status", answer)


@check("SEC-16", "WIRE-15", transports=HTTP)
async def no_session_messages(b: Bench) -> None:
    """There is no authenticate and no cancel on HTTP"""
    answer = await b.ask(message("authenticate", {"scheme": "bearer", "token": "conformance"}))
    b.that("SEC-16", answer.type == "error", "an error for authenticate on HTTP", answer)
    answer = await b.ask(message("cancel", {"request_id": "conformance"}, id=None))
    b.that("SEC-16", answer.type == "error", "an error for cancel on HTTP", answer)
    wrong = message("invoke_request", {"macro_id": "conformance-none", "args": {}})
    answer = await b.ask(wrong, "evaluate")
    b.that("WIRE-15", answer.type == "error", "no invocation where intents are evaluated", answer)


@check("SEC-26", transports=HTTP)
async def nothing_lists_tools(b: Bench) -> None:
    """No address lists the tools"""
    line = await b.http()
    for end in ("evaluate", "invoke"):
        address = line.address(end)
        for url in (address, address.rsplit("/", 1)[0] + "/tools", address.rsplit("/", 1)[0] + "/macros"):
            response = await line.request("GET", url, headers=b.plan.credentials.headers)
            listed = response.status_code < 400 and b"macro_id" in response.content
            b.that("SEC-26", not listed, f"no list of tools at {url}", response.status_code)


@check("TRANS-22", transports=HTTP, access=False)
async def origins_with_credentials(b: Bench) -> None:
    """A server that requires authentication does not let in every origin"""
    if not b.auth_required:
        raise Untested("the server requires no authentication")
    line = await b.http()
    for method, url in (("GET", line.manifest_url), ("OPTIONS", line.address("evaluate"))):
        headers = {"origin": _ORIGIN, "access-control-request-method": "POST"}
        response = await line.request(method, url, headers=headers)
        allowed = response.headers.get("access-control-allow-origin")
        b.that("TRANS-22", allowed != "*", "no Access-Control-Allow-Origin: *", allowed)


@check("SEC-37", transports=HTTP, access=False)
async def odd_requests(b: Bench) -> None:
    """Paths and methods that do not exist are errors of the client"""
    line = await b.http()
    missing = await line.request("GET", line.address("evaluate") + "/conformance-none")
    b.that("SEC-37", 400 <= missing.status_code < 500, "a status of 4xx for an unknown path", missing.status_code)
    deleted = await line.request("DELETE", line.address("evaluate"))
    b.that("SEC-37", 400 <= deleted.status_code < 500, "a status of 4xx for an unknown method", deleted.status_code)

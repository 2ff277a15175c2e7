"""HTTP over real sockets: paths, headers, status codes, sizes, and clients that go away."""

from __future__ import annotations

import asyncio
import json
import ssl
import warnings
from pathlib import Path
from typing import Any

import pytest

from manglecp.intent import Identity
from manglecp.pack import SkillText
from manglecp.server.app import App
from manglecp.server.auth_config import ResourceMetadata
from manglecp.server.config import Rate, ServerSettings
from manglecp.server.metrics import Metrics
from manglecp.server.tls import Tls
from manglecp.wire import CODES
from tests.invoke.test_request_keys import Held
from tests.server.certificates import certificate
from tests.server.desk import PATIENCE, RULES, Tokens, cancel, desk, encoded, intent, invoke, plain_pack
from tests.server.house import JSON, House, house
from tests.server.slow import slow_evaluations

MANIFEST = "/.well-known/manglecp/manifest.json"
HEAD = b"POST /evaluate HTTP/1.1\r\nhost: localhost\r\n"


async def post(h: House, path: str, message: Any, **headers: str) -> tuple[int, dict[str, Any], Any]:
    body = message if isinstance(message, bytes) else encoded(message)
    answer = await h.http.post(path, content=body, headers={**JSON, **headers})
    assert answer.headers["content-type"] == "application/json"
    told = answer.json()
    assert told["manglecp"] == "2026-02-draft"
    return answer.status_code, told, answer.headers


# --- the manifest ----------------------------------------------------------------------------------------------------


@pytest.mark.req("TRANS-10", "TRANS-11", "TRANS-29", "MANI-01", "MANI-11")
async def test_the_manifest_says_where_to_ask() -> None:
    async with house() as h:
        answer = await h.http.get(MANIFEST)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        manifest = answer.json()
        assert (manifest["type"], manifest["id"], manifest["payload"]["status"]) == ("manifest", None, "ready")
        ends = manifest["payload"]["endpoints"]
        assert ends == {
            "intent_eval": "/evaluate",
            "macro_invoke": "/invoke",
            "x-approvals": "/approvals",
            "x-decide": "/decide",
            "x-skills": "/skills",
            "x-facts": "/facts",
        }
        status, told, _ = await post(h, ends["intent_eval"], intent("a"))
        assert (status, told["type"], told["id"]) == (200, "intent_response", "a")
        [tool] = [one for one in told["payload"]["macro_tools"] if one["name"] == "t"]
        status, told, _ = await post(h, ends["macro_invoke"], invoke("b", tool["macro_id"], {"n": 3}))
        assert (status, told["type"], told["id"]) == (200, "invoke_response", "b")
        assert told["payload"]["result"] == {"n": 3}


@pytest.mark.req("MANI-35")
async def test_a_manifest_that_is_known_is_not_sent_again() -> None:
    async with house() as h:
        first = await h.http.get(MANIFEST)
        assert first.headers["cache-control"] == "no-cache"
        tag = first.headers["etag"]
        for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
            again = await h.http.get(MANIFEST, headers={"if-none-match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert (await h.http.get(MANIFEST, headers={"if-none-match": '"other"'})).content == first.content
        head = await h.http.head(MANIFEST)
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(first.content)))
        h.desk.packs.append(
            plain_pack('macro("n", "New."). mandatory("n") :- intent("go"). macro_step("n", 1, "look").')
        )
        await h.desk.revisions.reload()
        assert (await h.http.get(MANIFEST, headers={"if-none-match": tag})).status_code == 200


@pytest.mark.req("MANI-35")
async def test_a_stable_server_lets_its_manifest_be_kept() -> None:
    async with house(max_age=300) as h:
        assert (await h.http.get(MANIFEST)).headers["cache-control"] == "max-age=300"
        h.desk.revisions.drain()
        assert (await h.http.get(MANIFEST)).headers["cache-control"] == "no-cache"


@pytest.mark.req("MANI-29", "MANI-31", "MANI-06", "TRANS-20", "MANI-32")
async def test_the_states_of_a_server() -> None:
    hold = asyncio.Event()
    async with house(boot=False, hold=hold) as h:
        assert (await h.http.get(MANIFEST)).json()["payload"]["status"] == "booting"
        assert (await h.http.get("/health")).status_code == 200
        assert (await h.http.get("/ready")).status_code == 503
        status, told, headers = await post(h, "/evaluate", intent("a"))
        assert (status, told["payload"]["code"], told["id"]) == (503, "server_not_ready", "a")
        assert headers["retry-after"] == "1"
        hold.set()
        await h.desk.revisions.wait_until_loaded()
        assert (await h.http.get("/ready")).json() == {"status": "ready"}
        assert (await post(h, "/evaluate", intent("a")))[0] == 200
        h.desk.packs.clear()
        await h.desk.revisions.reload()
        degraded = (await h.http.get(MANIFEST)).json()["payload"]
        assert degraded["status"] == "degraded"
        assert degraded["extensions"]["x-degraded"]
        assert (await h.http.get("/ready")).status_code == 200
        h.desk.revisions.drain()
        assert (await h.http.get("/ready")).status_code == 503
        assert (await h.http.get("/health")).json() == {"status": "draining"}
        assert (await post(h, "/invoke", invoke("b", "x", {})))[0] == 503


@pytest.mark.req("TRANS-17", "ERR-11")
async def test_a_credential_without_the_right_is_forbidden() -> None:
    policy = 'intent_denied("Not for you.") :- intent("go"), client("ann").'
    known = {"a": Identity("ann", frozenset(), "user"), "b": Identity("bob", frozenset(), "user")}
    async with house(plain_pack(policy=policy), auth=Tokens(known)) as h:
        status, told, _ = await post(h, "/evaluate", intent(), authorization="Bearer a")
        assert (status, told["payload"]["code"], told["payload"]["recoverable"]) == (403, "auth_insufficient", False)
        assert (await post(h, "/evaluate", intent(), authorization="Bearer b"))[0] == 200


@pytest.mark.req("TRANS-20")
async def test_rules_that_fail_are_an_error_of_the_server() -> None:
    failing = 'late(X) :- intent("slow"), zero(Z), X = fn:div(1, Z). zero(0).'
    async with house(plain_pack(RULES + failing)) as h:
        status, told, _ = await post(h, "/evaluate", intent("a", "slow"))
        assert (status, told["payload"]["code"]) == (500, "evaluation_failed")
        assert (await post(h, "/evaluate", intent()))[0] == 200


# --- the form of a request -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": ""}, 415),
        ({"content-type": "application/manglecp+json"}, 415),
        ({"content-type": "application/json", "content-encoding": "gzip"}, 415),
        ({"content-type": "application/json", "accept": "text/html"}, 406),
        ({"content-type": "application/json", "accept": "application/json;q=0"}, 406),
        ({"content-type": "Application/JSON; charset=utf-8", "accept": "text/html, application/json;q=0.5"}, 200),
        ({"content-type": "application/json", "accept": "application/*"}, 200),
    ],
)
@pytest.mark.req("TRANS-13", "TRANS-14", "WIRE-30")
async def test_content_type_and_accept(headers: dict[str, str], status: int) -> None:
    async with house() as h:
        answer = await h.http.post("/evaluate", content=encoded(intent()), headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
        assert answer.json()["type"] == ("intent_response" if status == 200 else "error")


@pytest.mark.req("TRANS-14", "TRANS-40")
async def test_other_paths_and_methods_are_refused_with_a_message() -> None:
    async with house() as h:
        for path in ("/", "/cancel", "/evaluate/", "/.well-known/manglecp/", "/%2e%2e/evaluate"):
            status, told, _ = await post(h, path, cancel("a"))
            assert (status, told["type"]) == (404, "error")
        answer = await h.http.get("/evaluate")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST, OPTIONS")
        assert answer.json()["payload"]["code"] == "x-method_not_allowed"
        answer = await h.http.get("/ws")
        assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
        assert answer.json()["payload"]["code"] == "x-upgrade_required"


@pytest.mark.req("TRANS-16")
async def test_each_path_takes_its_own_type() -> None:
    async with house() as h:
        for path, message in (("/evaluate", invoke("a", "m", {})), ("/invoke", intent("a")), ("/invoke", cancel("x"))):
            status, told, _ = await post(h, path, message)
            assert (status, told["payload"]["code"]) == (400, "invalid_type")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"{", "malformed_message"),
        (b"", "malformed_message"),
        (b"\xff\xfe", "malformed_message"),
        (b"[" * 100_000, "malformed_message"),
        (b'{"type":"intent_request","type":"intent_request"}', "malformed_message"),
        (b'{"a":NaN}', "malformed_message"),
        ({**intent("i-1"), "manglecp": "1999"}, "unsupported_version"),
        (intent("i-1", facts=[{"pred": "p", "args": []}]), "unknown_predicate"),
        (invoke("i-1", "t.nothing", {}), "macro_not_found"),
    ],
)
@pytest.mark.req("TRANS-16", "TRANS-15", "TRANS-14")
async def test_the_status_is_that_of_the_code(message: Any, code: str) -> None:
    async with house() as h:
        path = "/invoke" if isinstance(message, dict) and message["type"] == "invoke_request" else "/evaluate"
        status, told, _ = await post(h, path, message)
        assert (status, told["type"], told["payload"]["code"]) == (CODES[code].status, "error", code)
        assert (await post(h, "/evaluate", intent()))[0] == 200


@pytest.mark.req("TRANS-19", "MANI-24")
async def test_a_body_is_counted_while_it_arrives() -> None:
    async with house() as h:
        limit = h.desk.core.pack_settings.limits.max_message_bytes
        status, told, _ = await post(h, "/evaluate", b" " * (limit + 1))
        assert (status, told["payload"]["code"]) == (413, "message_too_large")
        assert told["payload"]["details"] == {"limit": limit, "actual": limit + 1}

        async def drop() -> Any:
            for _ in range(2 * limit // 65_536):
                yield b" " * 65_536

        answer = await h.http.post("/evaluate", content=drop(), headers=JSON)
        assert (answer.status_code, answer.json()["payload"]["code"]) == (413, "message_too_large")
        # More than anybody would read is refused by its announcement alone.
        reader, writer = await h.raw(
            b"POST /evaluate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: 99999999999\r\n\r\n{"
        )
        async with asyncio.timeout(PATIENCE):
            told_raw = await reader.read()
        assert told_raw.startswith(b"HTTP/1.1 413 ")
        writer.close()
        assert (await post(h, "/evaluate", encoded(intent()).ljust(limit)))[0] == 200


@pytest.mark.req("TRANS-18")
async def test_an_evaluation_that_has_no_time_left_is_a_timeout() -> None:
    async with house() as h:
        asked = intent()
        asked["payload"]["constraints"] = {"max_compute_ms": 0}
        status, told, _ = await post(h, "/evaluate", asked)
        assert (status, told["payload"]["code"]) == (408, "evaluation_timeout")


@pytest.mark.req("TRANS-40")
async def test_whoever_closes_the_connection_has_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        async with house() as h:
            body = encoded(intent("a", "slow"))
            reader, writer = await h.raw(
                b"POST /evaluate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                b"content-length: %d\r\n\r\n%s" % (len(body), body)
            )
            assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE)
            writer.transport.abort()
            async with asyncio.timeout(PATIENCE):
                while not h.desk.handled:
                    await asyncio.sleep(0.01)
            assert (h.desk.handled[0].code, h.desk.handled[0].status) == ("cancelled", 499)
            gate.open.set()
            assert (await post(h, "/evaluate", intent("b")))[0] == 200
            del reader


async def test_requests_that_come_at_once_are_answered_each_for_itself() -> None:
    """In their order, on one connection that stays open."""
    async with house() as h:
        bodies = [encoded(intent(f"r-{number}")) for number in range(5)]
        head = HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
        reader, writer = await h.raw(b"".join(head % len(body) + body for body in bodies))
        async with asyncio.timeout(PATIENCE):
            for number in range(5):
                told = await reader.readuntil(b"\r\n\r\n")
                assert told.startswith(b"HTTP/1.1 200 OK\r\n")
                lines = dict(line.split(b": ", 1) for line in told.strip().split(b"\r\n")[1:])
                assert {b"content-type", b"cache-control", b"content-length", b"date"} == lines.keys()
                answer = json.loads(await reader.readexactly(int(lines[b"content-length"])))
                assert answer["id"] == f"r-{number}"
        writer.close()


async def test_whoever_wants_no_other_answer_is_told_that_there_is_none() -> None:
    async with house() as h:
        body = encoded(intent("a"))
        reader, writer = await h.raw(
            b"POST /evaluate HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
        async with asyncio.timeout(PATIENCE):
            told = await reader.read()
        assert b"\r\nconnection: close\r\n" in told.lower()
        assert json.loads(told.partition(b"\r\n\r\n")[2])["id"] == "a"
        writer.close()


@pytest.mark.req("TRANS-40")
async def test_under_another_listener_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that knows nothing but ASGI."""
    gone, sent = asyncio.Event(), list[Any]()
    events = iter([{"type": "http.request", "body": encoded(intent("a", "slow"))}])

    async def receive() -> Any:
        for event in events:
            return event
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(event: Any) -> None:
        sent.append(event)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/evaluate", "scheme": "http", "headers": headers}
    with slow_evaluations(monkeypatch) as gate:
        async with desk() as d, asyncio.timeout(PATIENCE):
            answering = asyncio.create_task(App(d.core)(scope, receive, send))
            assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE)
            gone.set()
            await answering
            assert (d.handled[0].code, sent[0]["status"]) == ("cancelled", 499)
            gate.open.set()


@pytest.mark.req("TRANS-40")
async def test_a_run_with_a_key_outlives_its_connection_and_is_cancelled_in_a_message() -> None:
    held = Held()
    auth = Tokens({"a": Identity("ann", frozenset(), "user"), "b": Identity("bob", frozenset(), "user")})
    two = plain_pack(
        'macro("w", "Two."). mandatory("w") :- intent("go"). macro_step("w", 1, "write"). macro_step("w", 2, "write").'
    )
    async with house(two, {"write": held}, auth=auth) as h:
        ann, bob = ({"authorization": f"Bearer {one}"} for one in "ab")
        _, told, _ = await post(h, "/evaluate", intent(), **ann)
        [tool] = told["payload"]["macro_tools"]
        request = invoke("x", tool["macro_id"], {"n": 1}, **{"x-request_key": "k"})
        gone = asyncio.create_task(post(h, "/invoke", request, **ann))
        await asyncio.wait_for(held.begun.wait(), PATIENCE)
        gone.cancel()  # which closes the connection
        stopping = cancel("x")
        stopping["payload"]["x-request_key"] = "k"

        async def stop(path: str = "/invoke", **who: str) -> tuple[int, bytes]:
            answer = await h.http.post(path, content=encoded(stopping), headers={**JSON, **who})
            return answer.status_code, answer.content

        assert (await stop())[0] == 401
        assert (await stop("/evaluate", **ann))[0] == 400
        assert await stop(**bob) == (204, b"")  # whose key is another one
        again = asyncio.create_task(post(h, "/invoke", {**request, "id": "y"}, **ann))
        assert await stop(**ann) == (204, b"")
        held.go_on.set()
        status, told, _ = await asyncio.wait_for(again, PATIENCE)
        assert (status, told["payload"]["code"]) == (499, "cancelled")
        assert len(h.desk.shop.bench.ran) == 1


async def test_a_client_that_goes_while_it_speaks_leaves_nothing_behind() -> None:
    async with house() as h:
        for sent in (
            b"POST /evalu",
            b"POST /evaluate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: 100\r\n\r\n{",
            b"\x00\x01\x02\r\n\r\n",
            b"POST /evaluate HTTP/9.9\r\n\r\n",
        ):
            _, writer = await h.raw(sent)
            writer.transport.abort()
        assert (await post(h, "/evaluate", intent()))[0] == 200
        assert not h.desk.core.pending


# --- credentials -----------------------------------------------------------------------------------------------------

USER = Identity("ann", frozenset({"look"}), "user")


@pytest.mark.req("SEC-10", "SEC-12", "SEC-16", "SEC-17", "TRANS-17")
async def test_credentials_are_in_the_headers_of_every_request() -> None:
    async with house(auth=Tokens({"good": USER})) as h:
        for headers in (
            {"authorization": "Bearer good"},
            {"authorization": "bearer good"},
            {"x-manglecp-api-key": "good"},
        ):
            assert (await post(h, "/evaluate", intent(), **headers))[0] == 200
        status, told, more = await post(h, "/evaluate", intent())
        assert (status, told["payload"]["code"]) == (401, "auth_required")
        assert more["www-authenticate"] == 'Bearer realm="manglecp"'
        bad: tuple[dict[str, str], ...] = (
            {"authorization": "Bearer bad"},
            {"authorization": "Basic good"},
            {"authorization": "good"},
            {"authorization": "Bearer " + "x" * 10_000},
            {"x-manglecp-api-key": "bad"},
            {"authorization": "Bearer good", "x-manglecp-api-key": "good"},
        )
        for headers in bad:
            status, told, more = await post(h, "/evaluate", intent(), **headers)
            assert (status, told["payload"]["code"]) == (401, "auth_invalid")
            assert 'error="invalid_token"' in more["www-authenticate"]
        body = encoded(intent())
        reader, writer = await h.raw(
            b"POST /evaluate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
            b"authorization: Bearer good\r\nauthorization: Bearer good\r\ncontent-length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
        writer.close()
        assert (await h.http.get(MANIFEST)).status_code == 200


async def test_the_address_of_a_document_about_the_resource_is_told() -> None:
    url = "https://tools.example/.well-known/oauth-protected-resource/pack"
    async with house(auth=Tokens({}), metadata=ResourceMetadata(url, b"{}")) as h:
        _, _, headers = await post(h, "/evaluate", intent())
        assert f'resource_metadata="{url}"' in headers["www-authenticate"]
        assert (await h.http.get("/.well-known/oauth-protected-resource/pack")).json() == {}


@pytest.mark.req("TRANS-20", "ERR-30")
async def test_whoever_asks_too_often_is_told_when_to_come_back() -> None:
    async with house(settings=ServerSettings(worker=False, peer_rate=Rate(0.5, 2))) as h:
        assert [(await post(h, "/evaluate", intent()))[0] for _ in range(2)] == [200, 200]
        status, told, headers = await post(h, "/evaluate", intent())
        assert (status, told["payload"]["code"]) == (429, "rate_limited")
        assert int(headers["retry-after"]) * 1_000 >= told["payload"]["retry_after_ms"]


# --- what is no message ----------------------------------------------------------------------------------------------


@pytest.mark.req("SKILL-07")
async def test_skills_are_fetched_by_their_id() -> None:
    skill = SkillText(skill_id="read logs", name="Logs", description="How to read logs", content="# Logs\nRead thém.")
    served = plain_pack(RULES + 'needs_skill("t", "read logs") :- intent("go").', skills=[skill])
    async with house(served, auth=Tokens({"good": USER})) as h:
        assert (await h.http.get("/skills/read%20logs")).status_code == 401
        good = {"authorization": "Bearer good"}
        await post(h, "/evaluate", intent(), **good)
        answer = await h.http.get("/skills/read%20logs", headers=good)
        assert (answer.status_code, answer.text) == (200, skill.content)
        assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
        tagged = {**good, "if-none-match": answer.headers["etag"]}
        assert (await h.http.get("/skills/read%20logs", headers=tagged)).status_code == 304
        for other in ("nothing", "../pack.toml", "%2e%2e%2fpack.toml"):
            assert (await h.http.get(f"/skills/{other}", headers=good)).status_code == 404


async def test_figures_are_for_those_who_may_see_them() -> None:
    known = {"good": USER, "watch": Identity("prometheus", frozenset({"read_metrics"}), "service")}
    metrics = Metrics()
    async with house(auth=Tokens(known), metrics=metrics) as h:
        h.desk.core._observers += (metrics,)
        await post(h, "/evaluate", intent(), authorization="Bearer good")
        await post(h, "/evaluate", b"{", authorization="Bearer good")
        assert (await h.http.get("/metrics")).status_code == 401
        assert (await h.http.get("/metrics", headers={"authorization": "Bearer good"})).status_code == 403
        shown = (await h.http.get("/metrics", headers={"authorization": "Bearer watch"})).text
        name = "manglecp_server_operation_duration_seconds_count"
        good = 'error_type="",intent="go",message_type="intent_request",tool="",transport="http"'
        bad = 'error_type="malformed_message",intent="",message_type="other",tool="",transport="http"'
        assert f"{name}{{{good}}} 1.0" in shown
        assert f"{name}{{{bad}}} 1.0" in shown
        assert 'manglecp_server_status{status="ready"} 1.0' in shown


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("SEC-34")
async def test_tls_of_a_current_version(tmp_path: Path) -> None:
    made = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=made[0])
    async with house(tls=Tls(*made), trusting=trusting) as h:
        assert (await post(h, "/evaluate", intent()))[0] == 200
        old = ssl.create_default_context(cafile=made[0])
        old.set_ciphers("DEFAULT:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore"):
            old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", h.port, ssl=old, server_hostname="localhost")


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("MANI-31")
async def test_a_server_that_goes_answers_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_evaluations(monkeypatch) as gate:
        async with house() as h:
            running = asyncio.create_task(post(h, "/evaluate", intent("a", "slow")))
            assert await asyncio.to_thread(gate.entered.acquire, timeout=PATIENCE)
            ending = asyncio.create_task(h.listener.end(PATIENCE))
            async with asyncio.timeout(PATIENCE):
                while h.desk.revisions.status != "draining":
                    await asyncio.sleep(0.01)
            status, told, _ = await post(h, "/evaluate", intent("b"))
            assert (status, told["payload"]["code"]) == (503, "server_not_ready")
            gate.open.set()
            assert (await running)[0] == 200
            assert await ending
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", h.port)

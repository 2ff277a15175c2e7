"""What whoever runs the server sees: logs, spans, figures."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from manglecp.intent import Identity
from manglecp.server.logs import configure_logging
from manglecp.server.metrics import Metrics
from manglecp.server.tracing import Tracing, tracing_observers
from tests.server.desk import Tokens, desk, encoded, intent, invoke
from tests.server.house import JSON, house


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    root, ours, stream = logging.getLogger(), logging.getLogger("manglecp"), io.StringIO()
    handlers, levels = root.handlers[:], (root.level, ours.level)
    configure_logging("info", stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


async def test_logs_are_lines_with_ids_and_without_secrets(log: io.StringIO) -> None:
    async with house(auth=Tokens({"se-cret": Identity("ann", frozenset(), "user")})) as h:
        for token in ("se-cret", "wr-ong"):
            headers = {**JSON, "authorization": f"Bearer {token}"}
            await h.http.post("/evaluate", content=encoded(intent("r\n1", facts=[])), headers=headers)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    answered = [one for one in lines if one["logger"] == "manglecp.server.core"]
    assert [one["request_id"] for one in answered] == ["r\n1", "r\n1"]
    assert answered[0]["identity"] == "ann"
    assert answered[1]["code"] == "auth_invalid"
    assert all(one["session"].startswith("http-") and one["time"].endswith("+00:00") for one in answered)
    assert "se-cret" not in log.getvalue()
    assert "wr-ong" not in log.getvalue()


def test_an_exception_is_one_line(log: io.StringIO) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("manglecp.x").exception("it failed", extra={"session": "s-1"})
    logging.getLogger("elsewhere").info("not ours")
    [line] = log.getvalue().splitlines()
    told = json.loads(line)
    assert (told["level"], told["message"], told["session"]) == ("error", "it failed", "s-1")
    assert "ValueError: two" in told["exception"]


async def test_spans_belong_to_the_trace_of_the_client() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with house() as h:
        h.desk.core._observers += (Tracing(provider),)
        trace_id = "0af7651916cd43dd8448eb211c80319c"
        headers = {**JSON, "traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
        await h.http.post("/evaluate", content=encoded(intent("r-1")), headers=headers)
        await h.http.post("/evaluate", content=b"{", headers={**JSON, "traceparent": "nonsense"})
    joined, alone = exporter.get_finished_spans()
    assert joined.context is not None
    assert f"{joined.context.trace_id:032x}" == trace_id
    assert joined.name == "intent_request go"
    assert joined.attributes is not None
    assert joined.attributes["manglecp.request.id"] == "r-1"
    assert joined.end_time is not None
    assert joined.start_time is not None
    assert joined.end_time > joined.start_time
    assert alone.parent is None
    exporter.clear()
    async with house() as h:
        h.desk.core._observers += (Tracing(provider),)
        headers = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
        async with h.websocket(additional_headers=headers) as ws:
            await ws.recv()
            await ws.send(encoded(intent("r-2")).decode())
            await ws.recv()
    [session] = exporter.get_finished_spans()
    assert session.context is not None
    assert f"{session.context.trace_id:032x}" == trace_id
    assert alone.status.status_code == StatusCode.ERROR
    assert alone.attributes is not None
    assert alone.attributes["error.type"] == "malformed_message"


async def test_spans_and_figures_name_intents_and_tools_but_nothing_that_a_client_made_up() -> None:
    exporter, provider, metrics = InMemorySpanExporter(), TracerProvider(), Metrics()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with desk() as d, d.client() as client:
        d.core._observers += (Tracing(provider), metrics)
        tools = await d.tools(client)
        await client.ask(intent("a", "no-such-intent"))
        await client.ask(invoke("b", tools["t"], {"n": 1}))
        await client.ask(invoke("c", "no-such-tool", {"n": 1}))
        shown = metrics.render(d.core)[1].decode()
    spans = [dict(one.attributes or {}) for one in exporter.get_finished_spans()]
    assert [one.name for one in exporter.get_finished_spans()] == [
        "intent_request go",
        "intent_request",
        "invoke_request t",
        "invoke_request",
    ]
    assert [one.get("manglecp.intent.name") for one in spans] == ["go", None, None, None]
    assert [one.get("manglecp.tool.name") for one in spans] == [None, None, "t", None]
    assert 'intent="go"' in shown
    assert 'tool="t"' in shown
    assert "no-such" not in shown


def test_spans_are_made_for_who_sees_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracing_observers() == ()
    monkeypatch.setattr(trace, "get_tracer_provider", TracerProvider)
    assert len(tracing_observers()) == 1


async def test_there_is_an_end_of_names_in_figures() -> None:
    """Rules may name tools after what a client states."""
    async with desk() as d, d.client() as client:
        await d.tools(client)
        [event] = d.handled
        metrics = Metrics()
        for number in range(1_000):
            metrics(event._replace(intent=None, type="invoke_request", tool=f"tool-{number}"))
        shown = metrics.render(d.core)[1].decode()
    assert shown.count("_count{") == 101
    assert 'tool="tool-99"' in shown
    assert 'tool="tool-100"' not in shown
    [rest] = [line for line in shown.splitlines() if "_count{" in line and 'tool="other"' in line]
    assert rest.endswith(" 900.0")

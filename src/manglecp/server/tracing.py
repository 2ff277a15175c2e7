"""Spans for answers, through the API of OpenTelemetry alone: without its SDK there are none, and they cost nothing.

A span is made when the answer is there, with the times at which it began and ended, so that nothing has to be carried
along. A client that says which trace it belongs to is a part of that (W3C trace context).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from opentelemetry import context, trace
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from manglecp.server.core import HandledRequest

__all__ = ["ATTRIBUTES", "TRACE_PARENT", "Tracing", "join_trace", "tracing_observers"]

TRACE_PARENT: Final = b"traceparent"
"""The header that names the trace of a request."""
_NOBODY: Final = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
"""What the API has for a process without an SDK: nobody would see a span."""
ATTRIBUTES: Final = {
    "type": "manglecp.message.type",
    "id": "manglecp.request.id",
    "session": "manglecp.session.id",
    "transport": "network.protocol.name",
    "intent": "manglecp.intent.name",
    "tool": "manglecp.tool.name",
    "code": "error.type",
}
"""The attributes of a span, by the fields of a request."""
_propagator: Final = TraceContextTextMapPropagator()


class Tracing:
    """An observer of the core (:class:`manglecp.server.core.HandledRequest`)."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("manglecp.server", tracer_provider=provider)

    def __call__(self, event: HandledRequest) -> None:
        about = event.intent or event.tool
        name = event.type or "message"
        span = self._tracer.start_span(
            name if about is None else f"{name} {about}", kind=SpanKind.SERVER, start_time=event.began_ns
        )
        if span.is_recording():
            for field, attribute in ATTRIBUTES.items():
                if (value := getattr(event, field)) is not None:
                    span.set_attribute(attribute, value)
            if event.code is not None:
                span.set_status(StatusCode.ERROR)
        span.end(event.ended_ns)


def tracing_observers() -> tuple[Tracing, ...]:
    """What makes spans, if anybody sees them. Whoever wants to has set up an SDK by the time that a process serves."""
    return () if isinstance(trace.get_tracer_provider(), _NOBODY) else (Tracing(),)


@contextmanager
def join_trace(headers: Mapping[bytes, bytes]) -> Iterator[None]:
    """What is done meanwhile belongs to the trace that these headers name, if they name one."""
    parent = headers.get(TRACE_PARENT)
    if parent is None:
        yield
        return
    carrier = {"traceparent": parent.decode("latin-1"), "tracestate": headers.get(b"tracestate", b"").decode("latin-1")}
    token = context.attach(_propagator.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)

"""Spans of handled messages, created with the API of OpenTelemetry. Without the SDK, the API does nothing.

A span is created once the reply exists, with the times at which the request began and ended. If the client sends a W3C
trace context, the span belongs to the client's trace.
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

_PROVIDERS_WITHOUT_SDK: Final = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
ATTRIBUTES: Final = {
    "type": "manglecp.message.type",
    "id": "manglecp.request.id",
    "session": "manglecp.session.id",
    "transport": "network.protocol.name",
    "intent": "manglecp.intent.name",
    "tool": "manglecp.tool.name",
    "code": "error.type",
}
"""The names of span attributes, by fields of :class:`.HandledRequest`."""
_propagator: Final = TraceContextTextMapPropagator()


class Tracing:
    """An observer of the core that creates a span for each handled request."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("manglecp.server", tracer_provider=provider)

    def __call__(self, event: HandledRequest) -> None:
        name = " ".join(filter(None, (event.type or "message", event.intent or event.tool)))
        span = self._tracer.start_span(name, kind=SpanKind.SERVER, start_time=event.began_ns)
        if span.is_recording():
            for field, attribute in ATTRIBUTES.items():
                if (value := getattr(event, field)) is not None:
                    span.set_attribute(attribute, value)
            if event.code is not None:
                span.set_status(StatusCode.ERROR)
        span.end(event.ended_ns)


def tracing_observers() -> tuple[Tracing, ...]:
    """Return an observer if the process has set up an SDK, else an empty tuple."""
    return () if isinstance(trace.get_tracer_provider(), _PROVIDERS_WITHOUT_SDK) else (Tracing(),)


@contextmanager
def use_trace_context(headers: Mapping[bytes, bytes]) -> Iterator[None]:
    """Make the trace context in these headers, if any, the current context: new spans belong to its trace."""
    parent = headers.get(b"traceparent")
    if parent is None:
        yield
        return
    carrier = {"traceparent": parent.decode("latin-1"), "tracestate": headers.get(b"tracestate", b"").decode("latin-1")}
    token = context.attach(_propagator.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)

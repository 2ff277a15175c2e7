"""Figures for Prometheus: how long answers took and of which kind they were, and how much is under way.

Labels come from bounded sets, never from what a client wrote: names of intents are those that the pack declares, and of
tools only so many have figures of their own. Where several processes serve one address, each
writes its figures into a folder that they share, and whichever is asked adds them up.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from manglecp.wire import CODES

if TYPE_CHECKING:
    from manglecp.server.core import Core, HandledRequest

__all__ = ["FOLDER_VARIABLE", "Metrics"]

FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
_STATUSES: Final = ("booting", "ready", "degraded", "draining")
_OTHER: Final = "other"
_MOST_TOOLS: Final = 100
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Metrics:
    """An observer of the core (:class:`manglecp.server.core.HandledRequest`)."""

    def __init__(self) -> None:
        self._shared = FOLDER_VARIABLE in os.environ
        self._registry = CollectorRegistry()
        self._duration = Histogram(
            "manglecp_server_operation_duration_seconds",
            "How long it took to answer a message.",
            ("transport", "message_type", "error_type", "intent", "tool"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._tools: set[str] = set()
        self._children: dict[tuple[str | None, ...], Histogram] = {}
        """Looking one up by its labels costs more than counting."""
        self._sessions = self._gauge("manglecp_server_sessions", "Sessions that are open.")
        self._pending = self._gauge("manglecp_server_pending_requests", "Requests that are not answered yet.")
        self._evaluating = self._gauge("manglecp_server_evaluations", "Evaluations that are running.")
        self._waiting = self._gauge("manglecp_server_waiting_evaluations", "Evaluations that wait for their turn.")
        self._invoking = self._gauge("manglecp_server_invocations", "Invocations that are running.")
        self._status = Gauge(
            "manglecp_server_status",
            "Processes that are in this state.",
            ("status",),
            registry=self._registry,
            multiprocess_mode="livesum",
        )

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self._registry, multiprocess_mode="livesum")

    def __call__(self, event: HandledRequest) -> None:
        key = (event.transport, event.type, event.code, event.intent, event.tool)
        child = self._children.get(key)
        if child is None:
            code = event.code if event.code is None or event.code in CODES else _OTHER
            tool = "" if event.tool is None else self._tool(event.tool)
            child = self._duration.labels(event.transport, event.type or _OTHER, code or "", event.intent or "", tool)
            if tool != _OTHER:
                self._children[key] = child
        child.observe((event.ended_ns - event.began_ns) / 1e9)

    def _tool(self, name: str) -> str:
        """Rules name tools, and may do so after what a client states: there is no end of names."""
        if len(self._tools) < _MOST_TOOLS:
            self._tools.add(name)
        return name if name in self._tools else _OTHER

    def look(self, core: Core) -> None:
        """Write down how much is under way now."""
        self._sessions.set(core.sessions)
        self._pending.set(core.pending)
        self._evaluating.set(core.evaluations.running)
        self._waiting.set(core.evaluations.waiting)
        self._invoking.set(core.admission.invoking)
        for status in _STATUSES:
            self._status.labels(status).set(core.revisions.status == status)

    def exposed(self, core: Core) -> tuple[str, bytes]:
        """The content type and the text."""
        self.look(core)
        registry = self._registry
        if self._shared:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return CONTENT_TYPE_LATEST, generate_latest(registry)

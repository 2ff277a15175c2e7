"""Metrics for Prometheus: durations and kinds of replies, and the current load.

Clients cannot create an unlimited number of label values: intents are those that the pack declares, and the number of
tools is limited. Several processes that serve one address share a folder of metrics, and each reports the sums of all.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from manglecp.wire import CODES

if TYPE_CHECKING:
    from manglecp.server.core import Core, HandledRequest

FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
_STATUSES: Final = ("booting", "ready", "degraded", "draining")
_OTHER: Final = "other"
_MAX_TOOLS: Final = 100
_BUCKET_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Metrics:
    """The metrics of a process; an observer of the core."""

    def __init__(self) -> None:
        self._is_multiprocess = FOLDER_VARIABLE in os.environ
        self._registry = CollectorRegistry()
        self._duration = Histogram(
            "manglecp_server_operation_duration_seconds",
            "Time from a message to its reply.",
            ("transport", "message_type", "error_type", "intent", "tool"),
            buckets=_BUCKET_SECONDS,
            registry=self._registry,
        )
        self._tools: set[str] = set()  # tools with a label of their own
        self._sessions = self._gauge("manglecp_server_sessions", "Open sessions.")
        self._pending_requests = self._gauge("manglecp_server_pending_requests", "Requests without a reply.")
        self._running_evaluations = self._gauge("manglecp_server_evaluations", "Running evaluations.")
        self._queue_length = self._gauge("manglecp_server_waiting_evaluations", "Queued evaluations.")
        self._running_invocations = self._gauge("manglecp_server_invocations", "Running invocations.")
        self._fact_age = Gauge(
            "manglecp_server_fact_source_age_seconds",
            "Seconds since the facts of a source were last confirmed.",
            ("source",),
            registry=self._registry,
            multiprocess_mode="livemin",
        )
        self._fact_failing = self._gauge(
            "manglecp_server_fact_source_failing", "Processes for which the source fails or is stale.", ("source",)
        )
        self._status = self._gauge("manglecp_server_status", "Processes with this status.", ("status",))

    def _gauge(self, name: str, description: str, labels: tuple[str, ...] = ()) -> Gauge:
        # With several processes, the value is the sum over the running ones.
        return Gauge(name, description, labels, registry=self._registry, multiprocess_mode="livesum")

    def __call__(self, event: HandledRequest) -> None:
        code = event.code if event.code is None or event.code in CODES else _OTHER
        tool = "" if event.tool is None else self._tool_label(event.tool)
        labels = (event.transport, event.type or _OTHER, code or "", event.intent or "", tool)
        self._duration.labels(*labels).observe((event.ended_ns - event.began_ns) / 1e9)

    def _tool_label(self, name: str) -> str:
        """Return the name, or ``other`` after too many names: rules can derive names from facts of a client."""
        if len(self._tools) < _MAX_TOOLS:
            self._tools.add(name)
        return name if name in self._tools else _OTHER

    def render(self, core: Core) -> tuple[str, bytes]:
        """Return the content type and the text of all metrics."""
        self._sessions.set(len(core.sessions))
        self._pending_requests.set(len(core.pending))
        self._running_evaluations.set(core.evaluations.running_count)
        self._queue_length.set(core.evaluations.queue_length)
        self._running_invocations.set(core.request_limits.running_invocations)
        for status in _STATUSES:
            self._status.labels(status).set(core.revisions.status == status)
        if core.revisions.current is not None and (facts := core.revisions.current.facts) is not None:
            failing = facts.failing()
            for source in facts.names:
                self._fact_failing.labels(source).set(source in failing)
            for source, seconds in facts.ages(time.time_ns()).items():
                self._fact_age.labels(source).set(seconds)
        registry = self._registry
        if self._is_multiprocess:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return CONTENT_TYPE_LATEST, generate_latest(registry)

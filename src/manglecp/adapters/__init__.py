"""Evidence for the harness from existing logs of agents: :func:`ingest` converts a log to a document per turn.

records                 a log as numbered JSON records
conversation            prompts and replies, independent of the provider; threads; failures of calls
anthropic, openai, mcp  the log formats of two providers, and of MCP
otel                    OpenTelemetry traces
policies                the policies and tools that bind a turn
turns                   assembles events to turns, and converts a turn to its evidence document
sources                 the table of formats, and ``ingest``
"""

from manglecp.adapters.policies import CONSTRAINTS, TRANSCRIPT_POLICY
from manglecp.adapters.records import MAX_LINE_BYTES, LogError
from manglecp.adapters.sources import SOURCES, ingest

__all__ = ["CONSTRAINTS", "MAX_LINE_BYTES", "SOURCES", "TRANSCRIPT_POLICY", "LogError", "ingest"]

"""The names of metrics, spans and their attributes, in one place: conventions for them are still being made.

They have the form of those for MCP (``mcp_server_operation_duration_seconds``) and a prefix of their own: a message of
this protocol is no method of that one, and panels for either should not add up both.
"""

from __future__ import annotations

from typing import Final

__all__: list[str] = []

# --- metrics ---------------------------------------------------------------------------------------------------------
DURATION: Final = "manglecp_server_operation_duration_seconds"
SESSIONS: Final = "manglecp_server_sessions"
PENDING: Final = "manglecp_server_pending_requests"
EVALUATING: Final = "manglecp_server_evaluations"
WAITING: Final = "manglecp_server_waiting_evaluations"
INVOKING: Final = "manglecp_server_invocations"
STATUS: Final = "manglecp_server_status"
LABEL_TYPE: Final = "message_type"
LABEL_TRANSPORT: Final = "transport"
LABEL_ERROR: Final = "error_type"
LABEL_STATUS: Final = "status"
LABEL_INTENT: Final = "intent"
LABEL_TOOL: Final = "tool"

# --- spans -----------------------------------------------------------------------------------------------------------
TRACER: Final = "manglecp.server"
ATTRIBUTE_TYPE: Final = "manglecp.message.type"
ATTRIBUTE_REQUEST: Final = "manglecp.request.id"
ATTRIBUTE_SESSION: Final = "manglecp.session.id"
ATTRIBUTE_TRANSPORT: Final = "network.protocol.name"
ATTRIBUTE_INTENT: Final = "manglecp.intent.name"
ATTRIBUTE_TOOL: Final = "manglecp.tool.name"
ATTRIBUTE_ERROR: Final = "error.type"

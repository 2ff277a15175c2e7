"""Every message type as a struct, tagged by ``type`` (companion, section 2.2).

envelope     what all of them have
tools        macro-tools and skills
intent       intent_request, intent_response
invocation   invoke_request, invoke_response, progress
manifest     manifest
session      error, cancel, authenticate, authenticate_response
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from manglecp.wire.messages.envelope import SUPPORTED_VERSIONS, VERSION, Message
from manglecp.wire.messages.intent import IntentRequest, IntentResponse
from manglecp.wire.messages.invocation import InvokeRequest, InvokeResponse, Progress
from manglecp.wire.messages.manifest import Manifest
from manglecp.wire.messages.session import Authenticate, AuthenticateResponse, Cancel, ErrorMessage

ClientMessage: TypeAlias = IntentRequest | InvokeRequest | Cancel | Authenticate
"""What a client sends."""
ServerMessage: TypeAlias = Manifest | IntentResponse | InvokeResponse | Progress | ErrorMessage | AuthenticateResponse
"""What a server sends."""

CLIENT_TYPES: Final[Mapping[str, type[ClientMessage]]] = {
    "intent_request": IntentRequest,
    "invoke_request": InvokeRequest,
    "cancel": Cancel,
    "authenticate": Authenticate,
}
SERVER_TYPES: Final[Mapping[str, type[ServerMessage]]] = {
    "manifest": Manifest,
    "intent_response": IntentResponse,
    "invoke_response": InvokeResponse,
    "progress": Progress,
    "error": ErrorMessage,
    "authenticate_response": AuthenticateResponse,
}
"""The registry: seven types of the base table and three that other sections define (OPEN-01)."""

__all__ = [
    "CLIENT_TYPES",
    "SERVER_TYPES",
    "SUPPORTED_VERSIONS",
    "VERSION",
    "Authenticate",
    "AuthenticateResponse",
    "Cancel",
    "ClientMessage",
    "ErrorMessage",
    "IntentRequest",
    "IntentResponse",
    "InvokeRequest",
    "InvokeResponse",
    "Manifest",
    "Message",
    "Progress",
    "ServerMessage",
]

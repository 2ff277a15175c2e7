"""A client of any MangleCP server: ``async with Client(url | command | server) as client``.

client         intents, tools, invocations, suggestions
blocking       the same without an event loop
routing        several servers as one
working_state  the facts that a client holds to be true
checking       what is looked at before anything is sent
retrying       when a request is sent once more
consent        a person's agreement, and tokens for it
connection     one server over time: manifest, status, identity, retries
answers        what comes back
credential     who the client says it is
errors         everything that can go wrong, as one small tree
targets        from an address to a transport
transports     how messages reach a server
plain          plain JSON out of what callers give
"""

from __future__ import annotations

from manglecp.client.answers import Evaluation, Outcome, Tool
from manglecp.client.client import Client
from manglecp.client.consent import Question, Signer
from manglecp.client.errors import ClientError, ConnectionLost, NoAnswer, Refused, ServerError, Unreadable
from manglecp.client.retrying import Retrying
from manglecp.client.working_state import WorkingState

__all__ = [
    "Client",
    "ClientError",
    "ConnectionLost",
    "Evaluation",
    "NoAnswer",
    "Outcome",
    "Question",
    "Refused",
    "Retrying",
    "ServerError",
    "Signer",
    "Tool",
    "Unreadable",
    "WorkingState",
]

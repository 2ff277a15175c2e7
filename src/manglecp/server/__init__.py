"""A server for a pack (rules, actions and settings in a folder): one message core for all transports.

app         HTTP and WebSocket as an ASGI application; stdio is the third transport
core        sessions, requests from their admission to their reply, draining
revisions   the loaded pack, reloads, and the state of the server
runtime     the composition root: from options to a running server
auth        credentials and identities

Transports own sockets and streams only: messages enter and leave the core as bytes.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

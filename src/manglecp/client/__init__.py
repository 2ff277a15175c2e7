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

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)

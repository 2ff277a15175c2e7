"""A pack, or a server, behind the Model Context Protocol (MCP): three fixed tools, or the tools of one intent.

sources        the pack or server that is served: its clients, the approval requests and the offers
tools          definitions of the fixed tools, and the instructions of the server
texts          results as texts for a model
handlers       the requests of MCP, for both eras of the protocol
subscriptions  changes of the list of tools in direct mode
transports     standard streams and Streamable HTTP
hosts          the configuration files of MCP hosts

No state belongs to a connection: a handle is the id of an offer in the store, so that every replica serves every call.
The modules except ``hosts`` need the extra ``mcp``.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

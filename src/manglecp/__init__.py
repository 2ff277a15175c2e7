"""manglecp: rules prove which tools an agent may use right now, and every decision can be explained.

This module imports nothing, so that a process that needs only one room pays for one room: what pack authors and clients
import from here is looked up when it is asked for.
Start with :mod:`manglecp.mangle`, the language that the rules are written in.
"""

__version__ = "0.1.0.dev0"
__all__ = ["Client", "Context", "Limits", "Part", "Progress", "Server", "__version__", "action", "external", "facts"]

TYPE_CHECKING = False  # as typing has it, without importing it
if TYPE_CHECKING:
    from manglecp.client.client import Client
    from manglecp.server.embedded import Server
    from manglecp.toolhost.action import action
    from manglecp.toolhost.context import Context
    from manglecp.toolhost.external import external
    from manglecp.toolhost.generator import Part, Progress, facts
    from manglecp.toolhost.shapes import Limits
else:  # a type checker that saw this would take every name for one of ours

    def __getattr__(name: str) -> object:
        homes = {
            "Client": "client.client",
            "Context": "toolhost.context",
            "Limits": "toolhost.shapes",
            "Part": "toolhost.generator",
            "Progress": "toolhost.generator",
            "Server": "server.embedded",
            "action": "toolhost.action",
            "external": "toolhost.external",
            "facts": "toolhost.generator",
        }
        if name not in homes:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"manglecp.{homes[name]}"), name)

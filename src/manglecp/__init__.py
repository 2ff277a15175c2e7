"""manglecp: rules prove which tools an agent may use right now, and every decision can be explained.

This module imports nothing, so that a process that needs only one room pays for one room.
Start with :mod:`manglecp.mangle`, the language that the rules are written in.
"""

__version__ = "0.1.0.dev0"
__all__ = ["__version__"]

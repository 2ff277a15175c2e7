"""manglecp: rules prove which tools an agent may use right now, and every decision can be explained.

Start with :mod:`manglecp.mangle`, the language that the rules are written in. ``__init__.pyi`` lists what pack authors
and clients import from here; each name is imported on first use.
"""

from manglecp.base.lazy import attach

__version__ = "0.1.0.dev0"
__getattr__, __dir__ = attach(__name__, __file__)

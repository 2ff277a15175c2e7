"""Intent to macro-tools: Mangle rules prove which tools exist for a request.

The kernel's rules (``rules/``) derive which tools are offered, with which steps, arguments, skills and limits;
Python only reads the derived facts. A definition is composed once, in full; disclosure level and token budget are
rendering. Proof hints, exclusions and unlocking facts are read from the same evaluation.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

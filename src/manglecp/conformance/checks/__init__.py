"""The checks, in the order in which they run: by module, then as they are defined there."""

from typing import Final

from manglecp.conformance.checks import access, disclosure, facts, intents, invocations, messages, transports
from manglecp.conformance.server_test import Check

_MODULES: Final = (access, disclosure, messages, facts, intents, transports, invocations)
CHECKS: Final = tuple(value for module in _MODULES for value in vars(module).values() if isinstance(value, Check))

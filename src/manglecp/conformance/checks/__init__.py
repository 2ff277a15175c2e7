"""The checks, in the order in which they run: first the checks of the scripts, then the checks of each module."""

from typing import Final

from manglecp.conformance.checks import disclosure, intents, invocations, transports
from manglecp.conformance.scripts import read_scripts
from manglecp.conformance.server_test import Check

_MODULES: Final = (disclosure, intents, transports, invocations)
CHECKS: Final = (
    *read_scripts(),
    *(value for module in _MODULES for value in vars(module).values() if isinstance(value, Check)),
)

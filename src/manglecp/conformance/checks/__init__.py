"""The checks, in the order in which they run."""

from typing import Final

from manglecp.conformance.bench import Check
from manglecp.conformance.checks import access, disclosure, facts, intents, invocations, messages, transports

CHECKS: Final[tuple[Check, ...]] = (
    *access.CHECKS,
    *disclosure.CHECKS,
    *messages.CHECKS,
    *facts.CHECKS,
    *intents.CHECKS,
    *transports.CHECKS,
    *invocations.CHECKS,
)

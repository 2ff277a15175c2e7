"""The package of turns that only observe.

It is used where nobody named a package: a log is turned into evidence to see whether its turns close, and nothing is to
be mutated because of it. It demands nothing beyond what every turn owes, and no digest is known for its mutation policy
to whoever judges, so an intent to mutate fails closed with ``mutation.policy_digest_mismatch``.
"""

from __future__ import annotations

from functools import cache

from manglecp.harness.descent import PATTERNS
from manglecp.harness.policy.package import PolicyPackage
from manglecp.harness.policy.reading import package_of

__all__ = ["observe"]


@cache
def observe() -> PolicyPackage:
    """The built-in package. ``observe().call_spec(...)`` gives log adapters the fields of each turn."""
    return package_of(
        {"name": "observe", "version": "1", "description": "Observe turns; mutate nothing."},
        {
            "render": {"operatorView": "as_logged", "reminderView": "as_logged"},
            "queue": {},
            "views": {},
            "decomposition": {"allowedPatterns": list(PATTERNS)},
            "governance": {"claimed": False},
            "mutation": {"mode": "observe_only"},
        },
    )

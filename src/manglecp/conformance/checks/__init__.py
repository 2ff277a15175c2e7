"""The checks, by what they look at. Importing them registers them, in this order."""

from manglecp.conformance.checks import (  # noqa: F401
    access,
    disclosure,
    encodings,
    envelopes,
    evaluation,
    explanations,
    facts,
    http,
    invocation,
    manifests,
    outcomes,
    sessions,
    sizes,
    times,
)

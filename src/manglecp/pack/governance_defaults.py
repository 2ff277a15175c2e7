"""The policy package of packs that bring none: what a server's own turns are bound to.

It admits exactly what an invocation is: calls of the stored chain, one after the other or side by side, whose effects
are authorised one gate at a time. Tools, callers and examples are not in it, because every chain has its own.

A pack that brings its own package may start from these documents. Digests of recorded turns hang on every word here, so
a change of content is a change of version.
"""

from __future__ import annotations

from functools import cache

from manglecp.harness.policy import PolicyPackage, package_of

__all__ = ["default_governance"]


@cache
def default_governance() -> PolicyPackage:
    """The same package every time; its digest is part of the evidence of runs."""
    return package_of(
        {"name": "manglecp-default", "version": "1.0.0", "description": "Proven chains, one gate before each effect."},
        {
            # what may be asked for, and how it comes back
            "filter": {"mode": "forbidden"},
            "parallel": {"allowed": True, "maxBranches": 1024},  # counted over a whole turn
            "transport": {"parallelToolCalls": True, "ordering": "any"},
            "truncation": {"maxBytes": 1_048_576, "marker": "…", "strategy": "middle"},
            "boundary": {"allowedEditSurfaces": ["toolhost"], "shellEditsForbidden": True},
            "sandbox": {"profile": "strict"},
            # what is shown of it
            "render": {
                "operatorView": "as_in_the_ledger",
                "reminderView": "observability_event",
                "injectionPoints": ["invoke_response"],
            },
            "queue": {"requiredQueueIds": ["events"]},
            "views": {
                "views": {"run": {"sourceRefs": ["run://"], "description": "The steps of the run and their states."}},
                "requiredStateViewIds": ["run"],
            },
            "compaction": {"enabled": False},
            "scope": {"roles": {"orchestrator": {"read": ["run://"], "write": ["run://"]}}},
            # how a run goes on
            "decomposition": {"allowedPatterns": ["single", "chain", "parallel"], "maxFanOut": 256},
            "handoff": {"allowedTargets": [], "requiredArtifactRefs": [], "requireReturnPath": True},
            "stop": {},
            "protocol": {
                "handledStopReasons": ["tool_use", "pause_turn", "end_turn"],
                "continuation": {"tool_use": "continue", "pause_turn": "resume", "end_turn": "stop"},
            },
            # who has to have looked
            "governance": {
                "claimed": True,
                "requiredControls": ["policyProvenance", "guardrailStages", "observabilityMode", "riskTier"],
            },
            "guardrail-stages": {"requiredStages": ["pre_flight", "input", "output"]},
            "observability": {
                "mode": "internal_processor",
                "allowedModes": ["internal_processor", "disabled"],
                "processorRef": "ledger://manglecp",
                "requireProcessorRef": True,
            },
            "risk-tiers": {
                "defaultTier": "high",
                "tiers": {
                    "low": {"controlProfileRef": "controls://read-only"},
                    "moderate": {"controlProfileRef": "controls://gated-effects"},
                    "high": {"controlProfileRef": "controls://approved-effects", "humanCheckpoint": True},
                },
            },
            "mutation": {"mode": "instruction_linked"},
            # what it takes to change any of this
            "eval-gate": {
                "dataset": "manglecp-invocations-labelled",
                "profileRef": "bench://manglecp-invocations",
                "thresholds": {"precision": 0.95, "recall": 0.9, "f1": 0.92},
            },
            "red-team": {
                "requiredPlugins": ["data-exfiltration", "prompt-injection", "tool-abuse"],
                "requiredStrategies": ["encoded", "multi-turn"],
                "minProbes": 200,
                "maxFailures": 0,
            },
        },
    )

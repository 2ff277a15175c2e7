"""Tests of packs: declare an intent, look at the tools, run one, look at what came of it.

    def test_the_log_makes_the_diagnosis_complete(pack):
        answer = pack.intent("diagnose_error", facts=FACTS, now="2026-02-19T14:30:05Z")
        answer.offers("full_stack_diagnosis")
        answer.lacks("frontend_diagnosis", because="conflict")

packs     a pack under test
answers   what an intent is answered with
runs      what an invocation came to
actions   functions in place of actions, with the same rights
stages    where invocations run: a store in memory, hosts if they are needed
watching  which rules never fired
plugin    the pytest side: the fixture ``pack`` and ``--pack-coverage``

Everything is synchronous and nothing needs a network. Names are looked up when they are asked for: pytest loads the
plugin before it looks at the tests, also where there are no packs.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, without importing it
if TYPE_CHECKING:
    from manglecp.testing.actions import Called
    from manglecp.testing.answers import Answer, OfferedTool, Proof
    from manglecp.testing.packs import Pack, load_pack
    from manglecp.testing.refusal import Refused
    from manglecp.testing.runs import Delta, Run
else:

    def __getattr__(name: str) -> object:
        homes = {
            "Answer": "answers",
            "Called": "actions",
            "Delta": "runs",
            "OfferedTool": "answers",
            "Pack": "packs",
            "Proof": "answers",
            "Refused": "refusal",
            "Run": "runs",
            "load_pack": "packs",
        }
        if name not in homes:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"manglecp.testing.{homes[name]}"), name)


__all__ = ["Answer", "Called", "Delta", "OfferedTool", "Pack", "Proof", "Refused", "Run", "load_pack"]

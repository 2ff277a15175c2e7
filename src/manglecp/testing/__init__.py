"""Tests of packs: declare an intent, look at the tools, run one, look at the result.

    def test_the_log_makes_the_diagnosis_complete(pack):
        answer = pack.intent("diagnose_error", facts=FACTS, now="2026-02-19T14:30:05Z")
        answer.offers("full_stack_diagnosis")
        answer.lacks("frontend_diagnosis", because="conflict")

Everything is synchronous, and nothing needs a network. The fixture ``pack`` and ``--pack-coverage`` are in ``plugin``.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

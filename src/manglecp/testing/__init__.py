"""Tests of packs: declare an intent, check the offered tools, invoke one, check its result.

    def test_the_log_makes_the_diagnosis_complete(pack):
        answer = pack.intent("diagnose_error", facts=FACTS, now="2026-02-19T14:30:05Z")
        answer.offers("full_stack_diagnosis")
        answer.lacks("frontend_diagnosis", because="conflict")

All methods block, and none needs a network. The fixture ``pack`` and ``--pack-coverage`` are in ``plugin``.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

"""Parse programs: facts with the fast path, facts and rules with the full parser, and a realistic program.

Budgets: 50,000 facts in 0.6 s and 2,000 rules in 0.15 s of CPU time. The peer is clingo's reader (C++) on the same
facts.
"""

from __future__ import annotations

import re

import clingo
from _programs import intent_base, intent_facts, intent_rules
from _table import best, print_table

from manglecp.mangle import Program, Source, parse


def clingo_reads(text: str) -> None:
    control = clingo.Control(message_limit=0)
    control.add("base", [], text)
    control.ground([("base", [])])


def main() -> None:
    facts = intent_base(100_000)[:50_000]
    fact_text = "\n".join(facts)
    slow_text = fact_text.replace(")", " #\n)")  # a comment disables the fast path
    rules = [line for line in intent_rules().splitlines() if ":-" in line]
    rule_text = "\n".join((rules * 20)[:2_000])
    asp_text = re.sub(r"/[a-z/0-9]+", lambda name: f'"{name[0]}"', fact_text)

    measured = [
        ("50,000 facts, fast path", "0.600", lambda: parse(Source("facts", fact_text))),
        ("50,000 facts, full parser", "", lambda: parse(Source("facts", slow_text))),
        ("50,000 facts, clingo reads and grounds", "", lambda: clingo_reads(asp_text)),
        ("2,000 rules", "0.150", lambda: parse(Source("rules", rule_text))),
        (
            "load intent.mg (127 rules, 60 facts), types checked",
            "",
            lambda: Program.load([Source("rules", intent_rules()), Source("facts", intent_facts())]),
        ),
    ]
    rows = [(name, f"{best(run):.3f}", budget) for name, budget, run in measured]
    print_table(("measurement", "CPU seconds", "budget"), rows)


if __name__ == "__main__":
    main()

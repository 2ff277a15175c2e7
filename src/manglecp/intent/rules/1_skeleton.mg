# Phase 1: what the intent cannot do without. Contract 1: every tool that is returned serves the intent.

candidate(Tool, 100, "skeleton") :- mandatory(Tool).

core(Tool) :- mandatory(Tool).

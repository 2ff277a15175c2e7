# Phase 1: the mandatory tools of the intent. Contract 1: each returned tool serves the intent.

candidate(Tool, 100, "skeleton") :- mandatory(Tool).

core(Tool) :- mandatory(Tool).

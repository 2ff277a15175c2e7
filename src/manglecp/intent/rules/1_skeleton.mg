# Phase 1: the mandatory tools of the intent.

candidate(Tool, 100, "skeleton") :- mandatory(Tool).

kernel.core(Tool) :- mandatory(Tool).

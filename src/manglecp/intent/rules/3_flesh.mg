# Phase 3: what else would help, by how much. A score lies between 0 and 100.

candidate(Tool, Score, "flesh") :- relevant(Tool, Score), Score >= 0, Score <= 100.
candidate(Tool, 100, "flesh") :- relevant(Tool, Score), Score > 100.

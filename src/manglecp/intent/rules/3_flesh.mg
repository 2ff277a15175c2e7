# Phase 3: the helpful tools with their scores, from 0 to 100.

candidate(Tool, Score, "flesh") :- relevant(Tool, Score), Score >= 0, Score <= 100.
candidate(Tool, 100, "flesh") :- relevant(Tool, Score), Score > 100.

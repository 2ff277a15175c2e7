# Phase 5: what the chosen tools need comes with them, and nothing else. Contract 4.

kept(Tool) :- chosen(Tool, _, _).
needed(Tool) :- kept(Other), requires(Other, Tool).
needed(Tool) :- needed(Other), requires(Other, Tool).

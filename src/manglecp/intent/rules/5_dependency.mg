# Phase 5: the dependencies of the chosen tools are added, and no other tool. Contract 4.

kept(Tool) :- chosen(Tool, _, _).
needed(Tool) :- kept(Other), requires(Other, Tool).
needed(Tool) :- needed(Other), requires(Other, Tool).

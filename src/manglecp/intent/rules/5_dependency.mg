# Phase 5: the dependencies of the chosen tools are added, and no other tool.

kernel.kept(Tool) :- chosen(Tool, _, _).
kernel.needed(Tool) :- kernel.kept(Other), requires(Other, Tool).
kernel.needed(Tool) :- kernel.needed(Other), requires(Other, Tool).

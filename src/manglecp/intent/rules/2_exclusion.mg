# Phase 2: the tools that must not be offered. Contract 2: these rules do not depend on the selection, so no selected tool
# can weaken them.

named(Tool) :- candidate(Tool, _, _).
named(Tool) :- named(Other), requires(Other, Tool).

barred_by(Tool, "policy", Reason) :- named(Tool), prohibited(Tool, Reason).
barred_by(Tool, "policy", "not permitted") :- named(Tool), permitted_only(), !permitted(Tool).
barred_by(Tool, "policy", Reason) :-
  named(Tool),
  may_run(Tool, Action),
  effect_denied(Action, Reason).
barred_by(Tool, "capability", Action) :- named(Tool), may_run(Tool, Action), !action(Action).
barred_by(Tool, "undefined", "it has no macro") :- named(Tool), !macro(Tool, _).
barred_by(Tool, "undefined", "it has no step") :-
  named(Tool),
  macro(Tool, _),
  !macro_step(Tool, _, _).

barred(Tool) :- barred_by(Tool, _, _).

# Phase 2: what must not be offered, whatever speaks for it. Contract 2: these rules never look at what was selected, so
# nothing that is selected can weaken them.

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

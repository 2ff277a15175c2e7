# Phase 2: the tools that must not be offered. These rules do not depend on the selection, so no selected tool
# can weaken them.

kernel.named(Tool) :- candidate(Tool, _, _).
kernel.named(Tool) :- kernel.named(Other), requires(Other, Tool).

kernel.barred_by(Tool, "policy", Reason) :- kernel.named(Tool), prohibited(Tool, Reason).
kernel.barred_by(Tool, "policy", "not permitted") :-
  kernel.named(Tool),
  permitted_only(),
  !permitted(Tool).
kernel.barred_by(Tool, "policy", Reason) :-
  kernel.named(Tool),
  kernel.may_run(Tool, Action),
  effect_denied(Action, Reason).
kernel.barred_by(Tool, "policy", Reason) :- kernel.named(Tool), kernel.outdated(Tool, Reason).
kernel.barred_by(Tool, "capability", Action) :-
  kernel.named(Tool),
  kernel.may_run(Tool, Action),
  !action(Action).
kernel.barred_by(Tool, "undefined", "it has no macro") :- kernel.named(Tool), !macro(Tool, _).
kernel.barred_by(Tool, "undefined", "it has no step") :-
  kernel.named(Tool),
  macro(Tool, _),
  !macro_step(Tool, _, _).

kernel.outdated(Tool, Reason) :- stale_source(Source, Reason), source_guards(Source, "tool", Tool).
kernel.outdated(Tool, Reason) :-
  stale_source(Source, Reason),
  source_guards(Source, "action", Action),
  kernel.may_run(Tool, Action).
kernel.outdated(Tool, Reason) :-
  stale_source(Source, Reason),
  source_guards(Source, "any", _),
  macro(Tool, _).

kernel.barred(Tool) :- kernel.barred_by(Tool, _, _).

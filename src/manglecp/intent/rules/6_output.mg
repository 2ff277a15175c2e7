# Phase 6: the offered tools, and the reasons for the excluded ones.

kernel.worth(Tool, Score) :- chosen(Tool, Score, _).
kernel.worth(Tool, 80) :- kernel.needed(Tool).
kernel.outdone(Tool, Score) :- kernel.worth(Tool, Score), kernel.worth(Tool, More), Score < More.

final_selected(Tool, Score, "skeleton") :-
  kernel.worth(Tool, Score),
  !kernel.outdone(Tool, Score),
  kernel.kept(Tool),
  kernel.core(Tool).
final_selected(Tool, Score, "flesh") :-
  kernel.worth(Tool, Score),
  !kernel.outdone(Tool, Score),
  kernel.kept(Tool),
  !kernel.core(Tool).
final_selected(Tool, Score, "dependency") :-
  kernel.worth(Tool, Score),
  !kernel.outdone(Tool, Score),
  !kernel.kept(Tool).

offered(Tool) :- final_selected(Tool, _, _).

excluded(Tool, "exclusion", Reason) :- kernel.barred_by(Tool, _, Reason).
excluded(Tool, "conflict", Reason) :-
  kernel.loses_to(Tool, Other),
  offered(Other)
  |> let Reason = fn:string:concat("yields to ", Other).
excluded(Tool, "conflict", "yields to a better one") :-
  kernel.loses_to(Tool, Other),
  !offered(Other).
excluded(Tool, "dependency", Reason) :-
  kernel.named(Tool),
  !kernel.barred(Tool),
  requires(Tool, Needed),
  kernel.barred(Needed)
  |> let Reason = fn:string:concat("needs ", Needed, ", which is excluded").
excluded(Tool, "dependency", Reason) :-
  kernel.named(Tool),
  !kernel.barred(Tool),
  requires(Tool, Needed),
  kernel.broken(Needed)
  |> let Reason = fn:string:concat("needs ", Needed, ", which is excluded").
excluded(Tool, "dependency", Reason) :-
  kernel.weight(Tool, _),
  requires(Tool, Needed),
  kernel.gone(Needed)
  |> let Reason = fn:string:concat("needs ", Needed, ", which lost to another tool").

# Phase 6: the offered tools, and the reasons for the excluded ones.

worth(Tool, Score) :- chosen(Tool, Score, _).
worth(Tool, 80) :- needed(Tool).
worth_most(Tool, Score) :- worth(Tool, Worth) |> do fn:group_by(Tool), let Score = fn:max(Worth).

final_selected(Tool, Score, "skeleton") :- worth_most(Tool, Score), kept(Tool), core(Tool).
final_selected(Tool, Score, "flesh") :- worth_most(Tool, Score), kept(Tool), !core(Tool).
final_selected(Tool, Score, "dependency") :- worth_most(Tool, Score), !kept(Tool).

offered(Tool) :- final_selected(Tool, _, _).

excluded(Tool, "exclusion", Reason) :- barred_by(Tool, _, Reason).
excluded(Tool, "conflict", Reason) :-
  loses_to(Tool, Other),
  offered(Other)
  |> let Reason = fn:string:concat("yields to ", Other).
excluded(Tool, "conflict", "yields to a better one") :- loses_to(Tool, Other), !offered(Other).
excluded(Tool, "dependency", Reason) :-
  named(Tool),
  !barred(Tool),
  requires(Tool, Needed),
  barred(Needed)
  |> let Reason = fn:string:concat("needs ", Needed, ", which is excluded").
excluded(Tool, "dependency", Reason) :-
  named(Tool),
  !barred(Tool),
  requires(Tool, Needed),
  broken(Needed)
  |> let Reason = fn:string:concat("needs ", Needed, ", which is excluded").
excluded(Tool, "dependency", Reason) :-
  strength(Tool, _),
  requires(Tool, Needed),
  gone(Needed)
  |> let Reason = fn:string:concat("needs ", Needed, ", which lost to another tool").

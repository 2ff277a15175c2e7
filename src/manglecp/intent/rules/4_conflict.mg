# Phase 4: of two tools in conflict the one with the higher score is kept; equal scores are decided by name.
#
# Conflicts are decided after all dependencies of candidates are added (kernel.able, kernel.pulled), so that a dependency cannot bring
# back a tool that lost. A tool that requires a loser is dropped with it.
#
# Each pair is decided once, by strength alone. A loser stays out even if its winner loses to a third tool, or is dropped
# with a dependency. Otherwise the result would depend on the order of evaluation, and an unrelated conflict could add
# tools.

kernel.broken(Tool) :- requires(Tool, Needed), kernel.barred(Needed).
kernel.broken(Tool) :- requires(Tool, Needed), kernel.broken(Needed).

kernel.able(Tool) :- candidate(Tool, _, _), !kernel.barred(Tool), !kernel.broken(Tool).
kernel.pulled(Needed) :- kernel.able(Tool), requires(Tool, Needed).
kernel.pulled(Needed) :- kernel.pulled(Tool), requires(Tool, Needed).

# A dependency has the score 80, also in phase 6: less than a mandatory tool (100).
kernel.weight(Tool, Score) :- kernel.able(Tool), candidate(Tool, Score, _).
kernel.weight(Tool, 80) :- kernel.pulled(Tool).

kernel.rivals(A, B) :- conflicts(A, B).
kernel.rivals(B, A) :- conflicts(A, B).
kernel.strength(Tool, Score) :-
  kernel.rivals(Tool, _),
  kernel.weight(Tool, Weight)
  |> do fn:group_by(Tool), let Score = fn:max(Weight).
kernel.loses_to(A, B) :-
  kernel.strength(A, Less),
  kernel.rivals(A, B),
  kernel.strength(B, More),
  Less < More.
kernel.loses_to(A, B) :-
  kernel.strength(A, Same),
  kernel.rivals(A, B),
  kernel.strength(B, Same),
  A > B.

kernel.gone(Tool) :- kernel.loses_to(Tool, _).
kernel.gone(Tool) :- kernel.weight(Tool, _), requires(Tool, Needed), kernel.gone(Needed).

chosen(Tool, Score, Phase) :- kernel.able(Tool), !kernel.gone(Tool), candidate(Tool, Score, Phase).

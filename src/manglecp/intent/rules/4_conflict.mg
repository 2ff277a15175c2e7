# Phase 4: of two tools in conflict the one with the higher score is kept; equal scores are decided by name. Contract 3.
#
# Conflicts are decided after all dependencies of candidates are added (able, pulled), so that a dependency cannot bring
# back a tool that lost. A tool that requires a loser is dropped with it.
#
# Each pair is decided once, by strength alone. A loser stays out even if its winner loses to a third tool, or is dropped
# with a dependency. Otherwise the result would depend on the order of evaluation, and an unrelated conflict could add
# tools.

broken(Tool) :- requires(Tool, Needed), barred(Needed).
broken(Tool) :- requires(Tool, Needed), broken(Needed).

able(Tool) :- candidate(Tool, _, _), !barred(Tool), !broken(Tool).
pulled(Needed) :- able(Tool), requires(Tool, Needed).
pulled(Needed) :- pulled(Tool), requires(Tool, Needed).

# A dependency has the score 80, as in phase 6.
weight(Tool, Score) :- able(Tool), candidate(Tool, Score, _).
weight(Tool, 80) :- pulled(Tool).
strength(Tool, Score) :- weight(Tool, Weight) |> do fn:group_by(Tool), let Score = fn:max(Weight).

rivals(A, B) :- conflicts(A, B).
rivals(B, A) :- conflicts(A, B).
loses_to(A, B) :- strength(A, Less), rivals(A, B), strength(B, More), Less < More.
loses_to(A, B) :- strength(A, Same), rivals(A, B), strength(B, Same), A > B.

gone(Tool) :- loses_to(Tool, _).
gone(Tool) :- strength(Tool, _), requires(Tool, Needed), gone(Needed).

chosen(Tool, Score, Phase) :- able(Tool), !gone(Tool), candidate(Tool, Score, Phase).

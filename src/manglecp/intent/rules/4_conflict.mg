# Phase 4: of rivals the better one stays; names decide between equals. Contract 3.
#
# Rivals meet only after everything that a candidate needs has been brought in (able, pulled), so that no dependency can
# bring a rival back. Whoever needs a loser goes with it.
#
# Every pair is decided once, by strength alone. A tool that was beaten stays out although its winner falls to a third,
# or goes with something that it needs: else what is offered would depend on the order in which pairs are looked at, and
# one more conflict far away could bring tools in.

broken(Tool) :- requires(Tool, Needed), barred(Needed).
broken(Tool) :- requires(Tool, Needed), broken(Needed).

able(Tool) :- candidate(Tool, _, _), !barred(Tool), !broken(Tool).
pulled(Needed) :- able(Tool), requires(Tool, Needed).
pulled(Needed) :- pulled(Tool), requires(Tool, Needed).

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

# expect: ok
l([1, 2]).
p(S) :- l(L) |> let S = fn:sum(L).

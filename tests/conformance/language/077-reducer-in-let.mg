# expect: error analysis
l([1, 2]).
p(A, B) :- l(L) |> let A = fn:list:len(L), let B = fn:sum(L).

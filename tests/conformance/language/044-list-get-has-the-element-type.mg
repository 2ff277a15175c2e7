# expect: ok
l([1, 2]).
p(Y) :- l(L), X = fn:list:get(L, 0), Y = fn:plus(X, 1).

# expect: ok
# a repeated variable asks for equality
p(fn:pair(1, 1)).
p(fn:pair(1, 2)).
l([[], []]).
same(X) :- p(P), :match_pair(P, X, X).
twice(H) :- l(L), :match_cons(L, H, _), :match_cons([[], H], H, T).

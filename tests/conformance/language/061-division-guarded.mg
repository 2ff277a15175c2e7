# expect: ok
# premises run in order: the guard comes first
n(0).
n(5).
p(X, Y) :- n(X), X != 0, Y = fn:div(10, X).

# expect: ok
n(1).
p(X) :- n(X), X = _.
q(X) :- n(X), _ = fn:plus(X, 1).

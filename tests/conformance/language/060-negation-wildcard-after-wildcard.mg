# expect: ok
q(1, 10).
q(2, 20).
r(1, 99).
p(X) :- q(X, _), !r(X, _).

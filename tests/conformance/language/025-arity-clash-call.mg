# expect: error analysis
p(1).
q(X) :- p(X, _).

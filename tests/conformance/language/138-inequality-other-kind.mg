# expect: error analysis
s("a").
p(X) :- s(X), X != 1.

# expect: error analysis
n(1).
p(X) :- n(X), :frobnicate(X).

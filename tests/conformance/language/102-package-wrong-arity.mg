# expect: error analysis
Package zoo!
owl(1).
p(X) :- owl(X, _).

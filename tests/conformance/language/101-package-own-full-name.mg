# expect: ok
Package zoo!
owl(1).
p(X) :- zoo.owl(X).
q(X) :- owl(X), !zoo.p(X).

# expect: ok
Package zoo!
night.owl(1).
p(X) :- zoo.night.owl(X), night.owl(X).

# expect: ok
# now: 2026-01-15T12:00:00Z
# an eternal annotation does not make a predicate temporal
e(/a)@[_, _].
e(/b).
p(X) :- e(X).

# expect: ok
# now: 2026-01-15T12:00:00Z
# a known start must lie in the interval
Decl e(X) temporal.
e(/a)@[2026-01-01, 2026-01-05].
e(/b)@[2026-01-10, 2026-01-20].
p(X, E) :- e(X)@[2026-01-11, E].

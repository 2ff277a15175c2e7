# expect: error analysis
# now: 2026-01-15T12:00:00Z
Decl e(X) temporal.
e(/a)@[2026-01-01].
p(X) :- e(X)@[7d, now].

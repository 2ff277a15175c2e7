# expect: error analysis
# now: 2026-01-15T12:00:00Z
# the first clause makes the predicate temporal
e(/b)@[2026-01-01].
e(/a).

# expect: error analysis
# now: 2026-01-15T12:00:00Z
# the first clause says nothing of time
e(/a).
e(/b)@[2026-01-01].

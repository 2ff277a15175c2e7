# expect: error eval
# now: 2026-01-15T12:00:00Z
# the ends of a given interval may depend on the evaluation time, so they are compared then
e(/a)@[now, 2026-01-01].

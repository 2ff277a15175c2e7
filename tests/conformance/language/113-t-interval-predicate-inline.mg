# expect: ok
# now: 2026-01-15T12:00:00Z
Decl e(X) temporal.
e(/a)@[2026-01-01, 2026-01-05].
e(/b)@[2026-01-10, 2026-01-20].
before(X, Y) :- e(X)@[S, E], e(Y)@[F, G], :interval:before(fn:pair(S, E), fn:pair(F, G)).

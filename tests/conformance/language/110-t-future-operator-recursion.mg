# expect: error analysis
# now: 2026-01-15T12:00:00Z
Decl e(X) temporal.
Decl r(X) temporal.
e(/a)@[2026-01-01].
r(X)@[T] :- e(X)@[T].
r(X)@[now] :- e(X)@[_, _], <+[0d, 7d] r(X).

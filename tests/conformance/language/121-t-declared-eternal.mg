# expect: ok
# now: 2026-01-15T12:00:00Z
Decl e(X) temporal.
e(/a)@[_, _].
p(X) :- e(X)@[_, _].
q(X) :- e(X)@[now].

# expect: ok
# now: 2026-01-15T12:00:00Z
# the function is never called
Decl e(X) temporal.
Decl none(X).
n(1).
p(X) :- none(X), e(fn:frobnicate(X))@[now].

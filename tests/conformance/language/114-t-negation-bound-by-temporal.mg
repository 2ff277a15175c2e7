# expect: ok
# now: 2026-01-15T12:00:00Z
# a temporal premise binds like any other
Decl e(X) temporal.
e(/a)@[2026-01-01].
e(/b)@[2026-01-02].
bad(/a).
p(X) :- !bad(X), e(X)@[S].

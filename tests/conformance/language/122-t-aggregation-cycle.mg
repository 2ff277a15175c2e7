# expect: error stratification
# now: 2026-01-15T12:00:00Z
Decl e(X) temporal.
e(1)@[2026-01-01].
e(N)@[now] :- e(X)@[_, _] |> do fn:group_by(), let N = fn:count().

# expect: ok
# now: 2026-01-15T12:00:00Z
Decl due(X) temporal.
start(/a, fn:time:parse_rfc3339("2026-01-01T00:00:00Z")).
due(X)@[T] :- start(X, S) |> let T = fn:time:add(S, fn:duration:parse("48h")).

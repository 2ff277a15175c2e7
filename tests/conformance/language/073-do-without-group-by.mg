# expect: error analysis
n(1).
p(N) :- n(X) |> do fn:sort_by(X), let N = fn:count().

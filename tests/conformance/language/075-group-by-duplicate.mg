# expect: error analysis
n(1).
p(X, N) :- n(X) |> do fn:group_by(X, X), let N = fn:count().

# expect: error analysis
n(1).
p(N) :- n(X) |> do fn:group_by(1), let N = fn:count().

# expect: error analysis
v(/a, 1).
p(K, Y) :- v(K, X) |> do fn:group_by(K), let Y = fn:plus(X, 1).

# expect: error analysis
# a let variable is new, also when grouping left the old one behind
v(/a, 1).
p(K, X) :- v(K, X) |> do fn:group_by(K), let S = fn:sum(X) |> let X = fn:plus(S, 1).

# expect: ok
n(1).
n(2).
p(fn:mult(S, 100)) :- n(X) |> do fn:group_by(), let S = fn:sum(X).

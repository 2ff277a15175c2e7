# expect: ok
# distinct bindings of the named variables
q(1, /a).
q(1, /b).
q(2, /a).
rows(N) :- q(X, _) |> do fn:group_by(), let N = fn:count().
distinct(N) :- q(X, _) |> do fn:group_by(), let N = fn:count_distinct().

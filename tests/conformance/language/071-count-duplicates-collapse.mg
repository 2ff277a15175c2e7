# expect: ok
# several premises: rows are distinct bindings, wildcards do not multiply them
q(1, /a).
q(1, /b).
q(2, /a).
ok(/yes).
n(N) :- q(X, _), ok(_) |> do fn:group_by(), let N = fn:count().
m(N) :- q(X, Y), ok(_) |> do fn:group_by(), let N = fn:count().

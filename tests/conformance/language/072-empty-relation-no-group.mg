# expect: ok
Decl none(X) bound [/number].
n(N) :- none(X) |> do fn:group_by(), let N = fn:count().
zero() :- !n(_).

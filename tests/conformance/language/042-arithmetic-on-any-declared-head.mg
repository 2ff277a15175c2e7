# expect: error analysis
Decl v(X) bound [/any].
Decl p(Y) bound [/number].
v(1).
p(Y) :- v(X) |> let Y = fn:plus(X, 1).

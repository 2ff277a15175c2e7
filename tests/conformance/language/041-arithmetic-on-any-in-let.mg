# expect: ok
# a let is not refused, its result is of any type
Decl v(X) bound [/any].
v(1).
p(Y) :- v(X) |> let Y = fn:plus(X, 1).

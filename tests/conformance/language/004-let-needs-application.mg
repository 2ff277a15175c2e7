# expect: error parse
n(1).
p(Y) :- n(X) |> let Y = 5.

# expect: error analysis
n(1).
p(Y) :- n(X) |> let Y = fn:plus(Z, 1).

# expect: ok
# heads see let variables
n(1).
p(fn:plus(Y, 1)) :- n(X) |> let Y = fn:mult(X, 10).

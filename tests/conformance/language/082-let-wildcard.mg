# expect: ok
# a let may throw its value away
n(1).
p(X) :- n(X) |> let _ = fn:plus(X, 1).

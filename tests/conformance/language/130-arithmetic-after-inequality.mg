# expect: ok
# a difference to a number takes the value to be a number
Decl v(X) bound [/any].
v(0).
v(4).
p(Y) :- v(X), X != 0, Y = fn:plus(X, 1).

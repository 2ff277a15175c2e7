# expect: ok
# two unknown values that were compared are taken for numbers
Decl v(X) bound [/any].
v(1).
v(2).
p(Z) :- v(X), v(Y), X < Y, Z = fn:plus(X, Y).

# expect: ok
Decl p(X) bound [/number].
Decl p(X, Y) bound [/number, /number].
p(1).
p(1, 2).
q(Y) :- p(X), p(X, Y).

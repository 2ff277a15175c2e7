# expect: ok
Decl p(X) bound [/bytes].
p(b"abc").
q(X) :- p(X).
Decl r(X) bound [/bytes].
r(X) :- q(X).

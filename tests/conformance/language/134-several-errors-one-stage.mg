# expect: error analysis
Decl n(X) bound [/number].
n("a").
p(X) :- nowhere(X).
q(X, Y) :- n(X).

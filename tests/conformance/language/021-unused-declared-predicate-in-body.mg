# expect: ok
# a declaration is enough to mention a predicate
Decl nothing(X) bound [/number].
n(1).
p(X) :- n(X), nothing(X).
q(X) :- n(X), !nothing(X).

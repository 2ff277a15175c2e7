# expect: error eval
Decl even(X) bound [/number].
Decl p(X) bound [/number] inclusion [even(X)].
even(2).
p(2).
p(3).

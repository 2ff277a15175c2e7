# expect: error analysis
Decl p(X, Y) bound [/number].
p(1, 2).

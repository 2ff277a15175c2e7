# expect: error analysis
Decl p(X) bound [/number].
p(1, 2).

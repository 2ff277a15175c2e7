# expect: error analysis
Decl p(X) bound [/bytes].
p("abc").

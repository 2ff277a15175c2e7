# expect: error analysis
Decl p(X, Y) descr [mode("+")].
p(1, 2).

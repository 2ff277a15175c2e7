# expect: error analysis
Decl p(X, Y) descr [arg(X, "documented")].
p(1, 2).

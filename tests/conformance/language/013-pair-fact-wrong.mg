# expect: error analysis
Decl p(X) bound [fn:Pair(/number, /string)].
p(fn:pair("a", 1)).

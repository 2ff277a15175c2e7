# expect: error analysis
Decl p(X, Y) bound [/number, /number] bound [/string, /string].
p(1, "b").

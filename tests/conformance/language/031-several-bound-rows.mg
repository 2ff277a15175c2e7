# expect: ok
Decl p(X, Y) bound [/number, /number] bound [/string, /string].
p(1, 2).
p("a", "b").

# expect: ok
Decl p(X) bound [fn:Pair(/number, /string)].
p(fn:pair(1, "a")).
p(fn:tuple(2, "b")).
Decl t(X) bound [fn:Tuple(/number, /string, /name)].
t(fn:tuple(1, "a", /n)).
t(fn:pair(2, fn:pair("b", /m))).

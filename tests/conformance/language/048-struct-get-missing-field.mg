# expect: error analysis
s({/a: 1}).
p(X) :- s(S), X = fn:struct:get(S, /b).

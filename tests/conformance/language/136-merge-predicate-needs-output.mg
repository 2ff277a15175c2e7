# expect: error analysis
Decl best(K, V) descr [fundep([K], [V]), merge([V], "pick")] bound [/name, /number].
Decl pick(A, B, C) descr [mode("+", "+", "+"), deferred()] bound [/number, /number, /number].
pick(A, B, C) :- A < B, C = B.
best(/a, 1).
best(/a, 2).

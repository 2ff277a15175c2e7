# expect: ok
# given facts are merged too
Decl best(K, V) descr [fundep([K], [V]), merge([V], "larger")] bound [/name, /number].
Decl larger(A, B, C) descr [mode("+", "+", "-"), deferred()] bound [/number, /number, /number].
larger(A, B, C) :- A <= B, C = B.
larger(A, B, C) :- B < A, C = A.
best(/a, 3).
best(/a, 5).
best(/b, 1).
seen(/b, 0).
seen(/b, 2).
best(K, V) :- seen(K, V).

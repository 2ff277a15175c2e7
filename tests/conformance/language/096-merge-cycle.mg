# expect: error stratification
# a merge needs its predicate finished
Decl best(K, V) descr [fundep([K], [V]), merge([V], "larger")] bound [/name, /number].
Decl larger(A, B, C) descr [mode("+", "+", "-"), deferred()] bound [/number, /number, /number].
larger(A, B, C) :- best(_, A), A <= B, C = B.
s(/a, 3).
best(K, V) :- s(K, V).

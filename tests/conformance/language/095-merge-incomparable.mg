# expect: error eval
# two values that no rule merges violate the functional dependency
Decl best(K, V) descr [fundep([K], [V]), merge([V], "larger")] bound [/name, /number].
Decl larger(A, B, C) descr [mode("+", "+", "-"), deferred()] bound [/number, /number, /number].
larger(A, B, C) :- A = B, C = B.
best(/a, 3).
best(/a, 5).

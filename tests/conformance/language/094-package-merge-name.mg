# expect: ok
# the merge predicate is looked up in the own package first
Package zoo!
Decl best(K, V) descr [fundep([K], [V]), merge([V], "larger")] bound [/name, /number].
Decl larger(A, B, C) descr [mode("+", "+", "-"), deferred()] bound [/number, /number, /number].
larger(A, B, C) :- A <= B, C = B.
larger(A, B, C) :- B < A, C = A.
best(/a, 3).
best(/a, 5).

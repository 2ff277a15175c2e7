# expect: error stratification
Decl best(K, V) descr [fundep([K], [V]), merge([V], "pick")] bound [/name, /number].
pick(A, B, C) :- best(_, A), best(_, B), C = A.
best(/a, 1).
best(/a, 2).

# expect: ok
Decl v(X) bound [/any].
v([/a: 1]).
v(7).
p(V) :- v(M), :match_entry(M, /a, V).

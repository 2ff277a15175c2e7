# expect: ok
Decl price(K, P) descr [deferred(), mode("+", "-")] bound [/name, /number].
price(/tea, P) :- P = 3.
price(/cake, P) :- P = 5.
order(/tea).
order(/pie).
bill(K, P) :- order(K), price(K, P).

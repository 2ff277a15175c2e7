# expect: ok
Decl a(M) bound [fn:Map(/name, /number)].
Decl b(M) bound [fn:Map(/animal, /any)].
a([/lamp: 1]).
b(M) :- a(M).

# expect: error analysis
# a map that knows fewer keys is no map for more
Decl a(M) bound [fn:Map(/animal, /number)].
Decl b(M) bound [fn:Map(/name, /number)].
b(M) :- a(M).

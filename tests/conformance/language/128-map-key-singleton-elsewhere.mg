# expect: ok
# a key is of its kind, whatever singletons other types mention
Decl m(M) bound [fn:Map(/string, fn:Singleton("x"))].
m(["x": "x"]).

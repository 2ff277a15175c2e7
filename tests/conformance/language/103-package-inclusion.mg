# expect: ok
Package zoo!
Decl bird(B) bound [/name].
Decl flies(B) bound [/name] inclusion [bird(B)].
bird(/owl).
flies(/owl).

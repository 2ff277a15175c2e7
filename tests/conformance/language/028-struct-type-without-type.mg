# expect: error analysis
Decl p(S) bound [fn:Struct(/a)].
q(1).

# expect: error analysis
Decl p(S) bound [fn:Set(/number)].
q(1).

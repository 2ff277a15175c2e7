# expect: error analysis
Decl v(X) bound [/any].
v(1).
p(Y) :- v(X), Y = fn:plus(X, 1).

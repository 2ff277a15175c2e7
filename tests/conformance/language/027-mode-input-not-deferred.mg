# expect: error eval
# the mode promises a value for X, but nobody gives one
Decl p(X, Y) descr [mode("+", "-")].
q(1).
p(X, Y) :- q(Y).

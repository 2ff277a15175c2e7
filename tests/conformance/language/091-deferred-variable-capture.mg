# expect: ok
# the variables of a deferred rule are its own
Decl double(X, Y) descr [deferred(), mode("+", "-")] bound [/number, /number].
double(X, Y) :- Y = fn:mult(X, 2).
n(1).
n(4).
p(X, Y) :- n(Y), double(Y, X).

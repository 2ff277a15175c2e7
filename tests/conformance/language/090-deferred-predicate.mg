# expect: ok
Decl double(X, Y) descr [deferred(), mode("+", "-")] bound [/number, /number].
double(X, Y) :- Y = fn:mult(X, 2).
n(1).
n(4).
p(Y) :- n(X), double(X, Y).
test(X) :- n(X), double(X, 8).

# expect: ok
# a wildcard in a bound is any type, each time another
Decl p(X, Y) bound [_, _].
p(1, "a").

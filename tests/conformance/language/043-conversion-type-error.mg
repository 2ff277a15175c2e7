# expect: error eval
# kinds of function arguments are looked at when the function runs
s("x").
p(T) :- s(X), T = fn:number:to_string(X).

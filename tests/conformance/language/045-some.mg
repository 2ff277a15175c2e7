# expect: ok
# an option is its value
n(1).
Decl p(X) bound [fn:Option(/number)].
p(X) :- n(N), X = fn:some(N).
q(fn:some("s")).

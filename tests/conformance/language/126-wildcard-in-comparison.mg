# expect: error analysis
n(1).
p(X) :- n(X), X < _.

# expect: error analysis
i(fn:pair(1, 2)).
p() :- i(X), i(Y), :interval:equals(X, Y).

# expect: error analysis
p(fn:div(1, 0)).

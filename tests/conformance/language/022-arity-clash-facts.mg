# expect: error analysis
p(1).
p(1, 2).

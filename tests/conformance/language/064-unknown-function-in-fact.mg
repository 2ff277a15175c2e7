# expect: error analysis
p(fn:frobnicate(1)).

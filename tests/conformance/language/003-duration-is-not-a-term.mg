# expect: error parse
p(7d).

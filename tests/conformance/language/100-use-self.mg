# expect: error analysis
Package zoo!
Use zoo!
p(1).

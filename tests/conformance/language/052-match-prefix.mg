# expect: ok
# the text decides, not the parts of the name
n(/a).
n(/ab).
n(/a/b).
n(/b/a).
p(X) :- n(X), :match_prefix(X, /a).
q(X) :- n(X), !:match_prefix(X, /a).

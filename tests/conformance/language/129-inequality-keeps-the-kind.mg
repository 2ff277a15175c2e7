# expect: error analysis
# what differs from /red is a name, not /red
Decl colour(C) bound [fn:Singleton(/red)].
n(/blue).
n(/red).
colour(X) :- n(X), X != /red.

# expect: error analysis
Decl animal(X) bound [/animal].
animal(/animal/cat).
p(X) :- animal(X), !:match_prefix(X, /animal).

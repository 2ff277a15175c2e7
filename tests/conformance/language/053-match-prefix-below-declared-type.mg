# expect: ok
# /animals starts with /animal
Decl zoo(X) bound [/animals].
zoo(/animals/cat).
p(X) :- zoo(X), :match_prefix(X, /animal).

# expect: ok
# what is not an animal is a plant
Decl being(X) bound [fn:Union(/animal, /plant)].
being(/animal/cat).
being(/plant/oak).
Decl plant(X) bound [/plant].
plant(X) :- being(X), !:match_prefix(X, /animal).
Decl animal(X) bound [/animal].
animal(X) :- being(X), :match_prefix(X, /animal).

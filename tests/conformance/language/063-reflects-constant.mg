# expect: ok
# only a variable with a value is tested by its prefix
Decl animal(X) descr [reflects(/animal)] bound [/animal].
animal(/animal/dog).
a() :- animal(/animal/dog).
b() :- animal(/animal/cat).
c() :- X = /animal/cat, animal(X).

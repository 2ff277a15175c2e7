# expect: ok
Decl b(X) bound [/any].
b(/true).
b(/false).
b(1).
l([1, 2]).
p(X) :- b(X), :filter(X).
q() :- l(L), :filter(fn:list:contains(L, 2)).
r() :- l(L), !:filter(fn:list:contains(L, 3)).

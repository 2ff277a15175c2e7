# expect: ok
Decl light(C) bound [fn:Union(fn:Singleton(/red), fn:Singleton(/green))].
light(/red).
Decl answer(N) bound [fn:Singleton(42)].
answer(42).
Decl switch(B) bound [fn:Union(fn:Singleton(/true), fn:Singleton(/false))].
l([1, 2]).
switch(B) :- l(L), B = fn:list:contains(L, 2).
go(/green).
light(/green) :- go(/green).

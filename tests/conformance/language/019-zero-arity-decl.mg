# expect: ok
Decl ready().
Decl steady() descr [doc("no bound is needed")].
ready().
steady() :- ready().

# expect: ok
Decl shape(S) bound [.TaggedUnion</kind, /circle : .Struct</r : /number>, /box : .Struct</w : /number, /h : /number>>].
shape({/kind: /circle, /r: 1}).
shape({/kind: /box, /w: 2, /h: 3}).
area(A) :- shape(S), :match_field(S, /w, W), :match_field(S, /h, H), A = fn:mult(W, H).
kind(K) :- shape(S), :match_field(S, /kind, K).

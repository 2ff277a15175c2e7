# expect: error analysis
Decl shape(S) bound [.TaggedUnion</kind, /circle : .Struct</r : /number>, /box : .Struct</w : /number, /h : /number>>].
shape({/kind: /box, /w: 2}).

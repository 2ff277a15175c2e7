# expect: ok
# \xHH gives any byte, other characters their UTF-8 bytes
b(b"\x07\xff").
b(b'sing"le').
b(b`tiçk`).
same() :- b(X), X = b"\x73ing\x22le".

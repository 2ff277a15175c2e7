# expect: ok
# only the double quote, the backslash, newline, tab and control characters are escaped
s("it's").
s("a\"b\\c\nd\te").
s("\x07bell\x7f").
s("ünïcödé ⟸").
b(b"'\"\\é").

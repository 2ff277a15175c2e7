# expect: ok
# escapes work in every quoting style
s(`tab\there`).
s(`quote\"s \\ \u{00e9}`).

# The starter policy of `manglecp guard`. The rules that you pass with --rules are added to it.

Decl tool_class(Tool, Class)
  descr [doc("The class in manglecp.lock: read, open_read, write, destructive or unknown.")]
  bound [/string, /string].
Decl tool_of(Tool, Server, Name)
  descr [doc("The server of a tool, and the name that the server gives it.")]
  bound [/string, /string, /string].
Decl exempt(Tool)
  descr [doc("A call of the tool needs no approval. For your rules.")]
  bound [/string].
Decl quarantined(Tool, Why)
  descr [doc("The guard found that the tool is not the pinned one."), direction("input")]
  bound [/string, /string].
Decl guard_file(Tool)
  descr [doc("The arguments name the lock, the store, a file of rules or the configuration of the guard."),
    direction("input")]
  bound [/string].

prohibited(T, Why) :- call(T), quarantined(T, Why).
public_reason(T, Why) :- call(T), quarantined(T, Why).

needs_confirmation(T) :- call(T), guard_file(T).
public_reason(T, "it names a file of the guard") :- call(T), guard_file(T).

needs_confirmation(T) :- call(T), tool_class(T, C), C != "read", !exempt(T).
public_reason(T, "it reads from outside of this machine") :- call(T), tool_class(T, "open_read"), !exempt(T).
public_reason(T, "it writes") :- call(T), tool_class(T, "write"), !exempt(T).
public_reason(T, "it may destroy data") :- call(T), tool_class(T, "destructive"), !exempt(T).
public_reason(T, "it is not known what it does") :- call(T), tool_class(T, "unknown"), !exempt(T).

"""General helpers for every other package. It imports no other package of the project.

json, digest     canonical JSON and digests of it
hash_chain       rows that hold the hash of their predecessor
ids              random identifiers
text             escaping, truncating and trimming text
suggestions      "did you mean"
source           a named text with its trust, and spans of it
diagnostic       an error in an input: code, message, location, fix
cache            a bounded LRU cache
background_loop  an event loop in a thread, for synchronous callers
gc_pause         the cyclic garbage collector, paused
lazy             package façades that import on first use
"""

"""General helpers for every other package. This package imports no other package of the project.

json, digest     canonical JSON and its digests
strict_json      JSON without duplicate keys, of bounded depth
hash_chain       rows that hold the hash of their predecessor
ids              random identifiers
text             invisible characters; escaping, truncating and trimming text
suggestions      the closest known name for a misspelt one
source           a named text with its trust; spans of a text
diagnostic       an error in an input: code, message, location, fix
cache            a bounded LRU cache
child            the output of an untrusted child process, within limits
background_loop  an event loop in a thread, for synchronous callers
extras           the message for an optional dependency that is not installed
gc_pause         pausing the cyclic garbage collector
lazy             package façades that import on first use
"""

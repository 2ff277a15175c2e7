"""What travels: JSON on one side, facts of the language on the other. Pure: no files, sockets or clocks.

faults        what is wrong with something that was sent, and where in it
decoding      bytes to plain JSON, strictly
shapes        what a declared bound says about the JSON that stands for a value
values        one value to JSON and back
schemas       a predicate as the wire sees it: names and shapes of its arguments
facts         one fact object to a fact and back
provenance    source and category of a fact, which change nothing
publishing    which predicates of a program clients know of
checking      the facts of a request one by one, with all that is wrong
batches       the same all at once, as long as nothing is wrong
profile       the two together: what clients may say, and what is said to them
messages      every message type as a struct
errors        everything that a client can be told
absence       null, which counts as absent
conditions    what has to hold between the members of a message
misfits       all that keeps an object from being a message
receiving     bytes to messages, or one error
sending       messages to bytes
stated        facts as people write them, to fact objects
telling       parts of answers as lines for people
clauses       rules and facts as JSON, an extension
json_schemas  JSON Schema of every message
"""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)

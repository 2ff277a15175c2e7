"""What travels: JSON on one side, facts of the language on the other. Pure: no files, sockets or clocks.

faults     what is wrong with something that was sent, and where in it
decoding   bytes to plain JSON, strictly
shapes     what a declared bound says about the JSON that stands for a value
values     one value to JSON and back
schemas    a predicate as the wire sees it: names and shapes of its arguments
facts      one fact object to a fact and back
"""

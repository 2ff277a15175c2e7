"""``make demo``: the incident pack behind a real server, and a real client that walks through it.

    python -m tools.demo [PACK]   PACK is another copy of the pack, to see what a changed rule does to the walk

Each step shows something and checks it. The first one that does not hold ends the walk, and the exit status is 1. The
recording is moved to the present, because the server goes by the clock: what was seen a moment ago counts, what was
seen last week does not. Everything is kept in a folder that is gone afterwards; the pack is only read.

steps    what is shown and checked, in order
place    the folder, the people and the server
showing  how it looks in a terminal
"""

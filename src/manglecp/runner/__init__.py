"""The Machina runner: menu, selection, action, commit, and a log that replays to the same result.

A run offers actions to a selector and executes the picked one (:mod:`.loop`), for example in a host of a plugin
(:mod:`.execution`). A selection is untrusted data: a strict grammar, SIDs of the menu only, and a patch that cannot
reach what steers the runner (:mod:`.selection`). The control mode selects the decider: a heuristic or a policy process
(:mod:`.selectors`); a policy that hangs, crashes or floods is an INVALID selection. Every run ends with a reason, and
its log can be verified and replayed (:mod:`.log`, :mod:`.playback`).
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

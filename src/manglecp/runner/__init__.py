"""A runner compatible with Machina's: it selects and executes actions, and its log replays to the same result.

In each step, a run offers a menu of actions to a selector and executes the picked one (:mod:`.loop`), for example in a
host of a plugin (:mod:`.execution`). A selection is untrusted data: it has a strict grammar, may name only SIDs of the
menu, and its patch cannot set the inputs that control the runner (:mod:`.selection`). The control mode determines
whether a fallback or a policy process decides (:mod:`.selectors`); a policy that hangs or crashes makes an INVALID
selection. Every run ends with a reason, and its log can be verified and replayed (:mod:`.log`, :mod:`.playback`).
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

"""The runner: menu, selection, action, commit, and a log that replays to the same result.

A run is a loop that offers actions to a selector and executes what it picks (:mod:`.run`). What runs them is up
to the caller; :mod:`.dispatching` runs them in the hosts of a plugin. Four ideas:

* **A selection is data from a stranger.** It is read by a grammar without slack (:mod:`.selection`), picks only from
  the menu it was shown (:mod:`.menu`), and its patch cannot reach what steers the runner (:mod:`.patch`).
* **Who decides is said once** (:mod:`.control`): a rule of thumb (:mod:`.heuristic`) or a policy in a process of its
  own (:mod:`.policy`, :mod:`.process`). A policy may hang, crash or flood; that is an INVALID selection and no other
  one's.
* **Every run ends**, and says why: by its goal, by a selector, by an action or by its budget (:mod:`.budget`).
* **What happened can be proved and repeated** (:mod:`.log`, :mod:`.replay`).
"""

from __future__ import annotations

from manglecp.toolhost.runner.budget import Budget
from manglecp.toolhost.runner.control import ControlMode, Selector, Situation
from manglecp.toolhost.runner.dispatching import Authorise, Dispatched, offers
from manglecp.toolhost.runner.errors import LogBroken, PatchRefused, PolicyRefused, RunnerError
from manglecp.toolhost.runner.execution import Execute, Outcome
from manglecp.toolhost.runner.header import RunHeader
from manglecp.toolhost.runner.heuristic import FirstFit
from manglecp.toolhost.runner.log import LONGEST, RunLog, Verified, verify
from manglecp.toolhost.runner.menu import Menu, Offer
from manglecp.toolhost.runner.patch import merge
from manglecp.toolhost.runner.policy import ExternalPolicy, Payload
from manglecp.toolhost.runner.process import Limits
from manglecp.toolhost.runner.replay import Divergence, Replayed, replay
from manglecp.toolhost.runner.request import RunRequest
from manglecp.toolhost.runner.run import EndReason, Result, run
from manglecp.toolhost.runner.selection import Kind, Selection, parse
from manglecp.toolhost.status import StepStatus

__all__ = [
    "LONGEST",
    "Authorise",
    "Budget",
    "ControlMode",
    "Dispatched",
    "Divergence",
    "EndReason",
    "Execute",
    "ExternalPolicy",
    "FirstFit",
    "Kind",
    "Limits",
    "LogBroken",
    "Menu",
    "Offer",
    "Outcome",
    "PatchRefused",
    "Payload",
    "PolicyRefused",
    "Replayed",
    "Result",
    "RunHeader",
    "RunLog",
    "RunRequest",
    "RunnerError",
    "Selection",
    "Selector",
    "Situation",
    "StepStatus",
    "Verified",
    "merge",
    "offers",
    "parse",
    "replay",
    "run",
    "verify",
]

"""From a macro-tool to its result: checks, a chain of calls behind gates, and what follows from it.

Three ideas:

* **The gate sits at the effect.** A run is a sequence of turns. Each turn is closed by the harness on evidence of what
  really happened, and only a closed turn gives the right to the next effect. There is no other way to one.
* **Write first, then act.** That a step is about to have an effect is on record before it is sent, what came of it
  before anything rests on it. Whoever finds the record can go on where it ends, or knows what nobody can know.
* **Rules say what it meant.** What a run changed, what to do next and how to sum it up is derived by the pack's own
  rules from what its extractors found. Text that an action returned is never taken for anything else.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

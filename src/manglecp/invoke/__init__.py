"""Invocation of macro-tools: admission, execution of the chain behind gates, recovery, and the response.

* **The gate is at the effect.** A run is a sequence of turns. The harness closes each turn on evidence, and only a
  closed turn authorises the next effect.
* **Write ahead.** The journal records a step before its effect is sent, and its outcome before another step uses it.
  A worker can resume the run from the journal, and sees which outcomes are unknown.
* **Rules interpret.** The pack's rules derive the delta, the suggestions and the summary from the values that its
  extractors find in outputs. Other text that an action returned is never interpreted.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

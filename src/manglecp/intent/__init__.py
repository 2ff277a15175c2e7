"""Intent to macro-tools: rules prove which tools exist for this request.

Three ideas:

* **Selection is a program.** Which tools are offered, with which steps, arguments, skills and limits, is derived by
  Mangle rules: six phases of the kernel's (``rules/``, one readable file each) over what the pack says. Python reads
  the answer off the derived facts; it decides nothing.
* **A definition is proven once and kept whole.** What a client sees of it, at which level of detail and within which
  budget, is rendering. What a tool is does not depend on it.
* **Everything can be asked why.** Proof hints, exclusions, what would unlock a tool: all read off the same evaluation.

identity     who asks
definition   a macro-tool as it was proven
"""

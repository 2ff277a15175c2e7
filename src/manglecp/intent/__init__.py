"""Intent to macro-tools: rules prove which tools exist for this request.

Three ideas:

* **Selection is a program.** Which tools are offered, with which steps, arguments, skills and limits, is derived by
  Mangle rules: six phases of the kernel's (``rules/``, one readable file each) over what the pack says. Python reads
  the answer off the derived facts; it decides nothing.
* **A definition is proven once and kept whole.** What a client sees of it, at which level of detail and within which
  budget, is rendering. What a tool is does not depend on it.
* **Everything can be asked why.** Proof hints, exclusions, what would unlock a tool: all read off the same evaluation.

Data meets the modules in this order:

    kernel, kernel_statements,      the rules, and what a pack may not get wrong      when a pack is loaded
      lint, value_lint, fact_sources
    domain, manifest_builder        a pack ready to be evaluated, and its manifest
    evaluation                      a request becomes facts, facts a result           for each request
    composition (chain,             the result becomes definitions
      input_schema, definition)
    budget, tokens, rendering       how much of each is shown, and how it travels
    proof_hints, why_not, redaction why
    responder                       the whole way, bytes to bytes; warming up

`contracts` checks answers independently of the rules.
"""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)

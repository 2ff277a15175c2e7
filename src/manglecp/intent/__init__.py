"""Intent to macro-tools: rules prove which tools exist for this request.

Three ideas:

* **Selection is a program.** Which tools are offered, with which steps, arguments, skills and limits, is derived by
  Mangle rules: six phases of the kernel's (``rules/``, one readable file each) over what the pack says. Python reads
  the answer off the derived facts; it decides nothing.
* **A definition is proven once and kept whole.** What a client sees of it, at which level of detail and within which
  budget, is rendering. What a tool is does not depend on it.
* **Everything can be asked why.** Proof hints, exclusions, what would unlock a tool: all read off the same evaluation.

Data meets the modules in this order:

    kernel, said, cross_checks,        the rules, and what a pack may not get wrong    when a pack is loaded
      argument_checks, result_checks,
      reference_checks, external_checks,
      generated, settled, rule_texts
    domain, manifest                   a pack ready to be asked, and what it tells of itself
    evaluation (identity, lookup)      a request becomes facts, facts an answer        for each request
    composition (chain, input_schema,  the answer becomes definitions
      safety, context, validity,
      macro_id, plain_json)
    disclosure, budget, tokens         how much of each is shown
    rendering, visible                 definitions as they travel
    proof_hints, exclusions, why_not,  why
      unlocking, sayable, coverage,
      redaction
    responding                         the whole way, bytes to bytes
    warming                            the same before anybody asks                    when a server starts

`definition` is a macro-tool as it was proven; `contracts` checks answers independently of the rules.
"""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)

"""Turn policies: the documents whose rules a turn must satisfy, each with a digest.

A *package* is a set of documents (tools, callers, rendering, evaluation, …). It supplies the call spec fields and
constraints of a turn. A *pin* fixes the package in force; only a promotion, which needs an evaluation and a red-team
report, changes it.

    schemas, kinds    validation; the kinds of documents and their consistency
    package           a package, its files, and what it supplies to a turn; the built-in ``observe`` and ``work``
    promotion         pins and promotions
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

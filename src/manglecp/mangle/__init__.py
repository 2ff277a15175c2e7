"""The Mangle language: Datalog with types, aggregation and time. Knows nothing of MangleCP.

Data meets the modules in this order:

    source, lexer, term_parser, parser     text to a syntax tree                       stage parse
    fact_parser                            text that holds facts only, without a tree
    packages, declarations                 full names; what is known of a predicate    stage analysis
    clauses, safety                        one clause at a time; the order of premises
    types, checker                         what the bounds forbid
    stratify                               what is evaluated together, in which order  stage stratification
    program                                all of the above: Program.load
    engine                                 the least model, compiled and incremental   stage eval
    naive (matching, terms, constraints)   the same by repeated application: its oracle
    model                                  the answer
    explain                                why it holds, why not, and what every rule contributed

`values` and `text` are the constants and their canonical spelling, `syntax` the tree, `printer` and `layout` its way
back to text, `builtins` the functions, predicates and reducers, `errors` everything that can be reported.
"""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)

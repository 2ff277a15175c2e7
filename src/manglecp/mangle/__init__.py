"""The Mangle language: Datalog with types, aggregation and time. Knows nothing of MangleCP.

Data meets the modules in this order:

    lexer, parser                     text to a syntax tree                                    stage parse
    fact_parser                       text that holds facts only, without a tree
    declarations, clauses             full names, what is known of a predicate; one clause     stage analysis
    types, checker                    what the bounds forbid
    stratify                          what is evaluated together, in which order               stage stratification
    program                           all of the above: Program.load
    engine                            the least model, compiled and incremental                stage eval
    naive (matching, externals)       the same by repeated application
    model, result                     what was found, and questions about it
    explain                           why a fact holds, why not, and what every rule contributed

`values` and `facts` are the constants and what is said with them, `syntax` the tree, `printer` and `formatter` its way
back to text, `builtins` the functions, predicates and reducers, `errors` everything that can be reported.
"""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)

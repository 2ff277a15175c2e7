"""The Mangle language: Datalog with types, aggregation and time. Independent of MangleCP.

Stages: parse (``lexer``, ``parser``), analysis (``declarations``, ``clauses``, ``types``, ``checker``), stratification
(``stratify``), evaluation (``engine``; ``naive`` interprets rare features and locates errors). :meth:`Program.load`
runs the first three stages. ``result`` holds the least model; ``explain`` makes proofs and finds missing facts.
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

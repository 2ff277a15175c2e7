"""Durable runs: what a chain with effects must not forget when its process dies.

model        runs, steps and decisions
tables       where they are kept, and what must never happen there
run_store    the journal: steps, ownership, decisions, queries
"""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)

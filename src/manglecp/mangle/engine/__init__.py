"""The engine: rules compiled to Python, evaluated semi-naively and incrementally over a prepared base.

Every result equals the result of the naive evaluator for the same facts.
"""

from manglecp.mangle.engine.base import Base, evaluate
from manglecp.mangle.engine.compiled import CompiledProgram, show_plan

__all__ = ["Base", "CompiledProgram", "evaluate", "show_plan"]

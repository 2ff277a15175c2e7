"""The engine: rules compiled to Python, evaluated semi-naively, incrementally over a prepared base.

Data meets the modules in this order:

    plan                   what may raise, and in which order premises are visited
    code, codegen          that order as the source of a Python function
    compiled               a program with its functions, made when first needed; facts from outside
    views                  relations: a frozen base below, what a request changes above
    evaluation             component by component: skip, start afresh, insert, maintain or evaluate again
    aggregate, maintenance groups and reducers; bringing a component of the base up to date
    interpreter            the naive evaluator, for what is rare and for the place of an error; constraints
    watch                  stopping an evaluation from outside
    model, base            the finished model; behind Program.base: Base.evaluate, Base.with_facts

Every answer is that of the naive evaluator over all facts together.
"""

from manglecp.mangle.engine.base import Base, evaluate
from manglecp.mangle.engine.compiled import CompiledProgram, show_plan
from manglecp.mangle.engine.watch import Cancellation

__all__ = ["Base", "Cancellation", "CompiledProgram", "evaluate", "show_plan"]

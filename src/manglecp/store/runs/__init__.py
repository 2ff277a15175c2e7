"""Durable runs: ``model`` (runs, steps, decisions), ``tables`` (the schema), ``run_store`` (the journal)."""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)

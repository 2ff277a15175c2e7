"""Conformance of a server to the protocol, tested from outside and reported by requirement.

report = await run("http://127.0.0.1:8000", level=2, plan=read_plan(Path("plan.toml")))
report.conforms, report.of("failed")
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

"""A client of any MangleCP server: ``async with Client(url | command | server) as client``."""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

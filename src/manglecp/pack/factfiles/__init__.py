"""Bulk loading of fact files. docs/reference/fact-files.md describes the formats."""

from manglecp.pack.factfiles.files import FileLimits
from manglecp.pack.factfiles.reader import FactFile, read_facts

__all__ = ["FactFile", "FileLimits", "read_facts"]

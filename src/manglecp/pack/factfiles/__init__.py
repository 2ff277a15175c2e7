"""Bulk loading of fact files. docs/reference/fact-files.md describes the formats."""

from manglecp.pack.factfiles.files import FileLimits
from manglecp.pack.factfiles.reader import FactFile, parse_facts, read_facts

__all__ = ["FactFile", "FileLimits", "parse_facts", "read_facts"]

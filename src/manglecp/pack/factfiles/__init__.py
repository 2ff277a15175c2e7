"""Facts in files, read in bulk. docs/reference/fact-files.md describes the formats.

A file is read whole or not at all; what is done with its facts is not known here.
"""

from manglecp.pack.factfiles.files import FileLimits
from manglecp.pack.factfiles.reader import FactFile, read_facts

__all__ = ["FactFile", "FileLimits", "read_facts"]

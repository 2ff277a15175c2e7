"""Facts in files: what a server knows, read in bulk. docs/reference/fact-files.md describes the formats.

    limits, opening    how much may be read; a file as text
    problems           everything that is wrong with a file, up to a cap, each with its place
    cells              the text of a table cell to a value, by the declared bound
    columns            which column of a table is which argument
    csv_table, parquet_table, jsonl, simplecolumn, mangle_text    one format each
    reading            the way in: files to facts, by suffix

A file is read whole or not at all, and nothing is known of what will be done with its facts.
"""

from manglecp.pack.factfiles.limits import FileLimits
from manglecp.pack.factfiles.reading import FactFile, read_facts

__all__ = ["FactFile", "FileLimits", "read_facts"]

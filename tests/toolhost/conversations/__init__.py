"""Conversations with a toolhost, written down as data, so that any toolhost can be held against them.

    scripts/*.toml   what is said, and what has to come back
    casts/*.toml     which tool of a plugin plays which role, with what input
    script           reads both
    matching         compares an answer with an expectation
    playing          has one conversation with one host
    __main__         the command line: a host, a plugin, a report

An expectation names the members that the contract fixes; an answer may have more. Where manglecp promises more than the
contract, or keeps it where the C++ toolhost does not, a conversation says ``ours = true`` and can be left out.
"""

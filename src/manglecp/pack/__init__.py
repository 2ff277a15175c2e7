"""A domain pack on disk: rules by trust level, facts, skills, actions and settings. docs/reference/packs.md.

folder, toml_reader, settings    files within limits and their digest; TOML with positions; pack.toml
outline                          the manifest before the rest is loaded
skills, governance               Markdown with front matter; the policies of invocations
interpreter                      the virtual environment of a pack, and the command of its hosts
host_listing, descriptions       the listing of a Python file by a host; its validation
secrets                          the operator's sources of secrets, and their values
loader, model, diagnostics       a folder to a Pack, or its diagnostics
watcher, scaffold                reload after an edit; the starter pack
factfiles                        bulk loading of fact files
"""

from manglecp.base.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)

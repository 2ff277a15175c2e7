"""A domain pack on disk: rules by trust level, facts, skills, actions and settings. docs/reference/packs.md.

folder, toml_reader, settings    files within limits and their digest; TOML with positions; pack.toml
outline                          the manifest before the rest is loaded
skills, governance               Markdown with front matter; the policies of invocations
host_listing, descriptions       a host that describes a Python file; what it lists
loader, model, diagnostics       a folder to a Pack, or everything that is wrong with it
watcher, scaffold                a pack that is being edited; a pack to begin with
factfiles                        facts in files
"""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)

"""A domain pack on disk: rules by trust level, facts, skills, actions and settings. docs/reference/packs.md.

Data meets the modules in this order:

    folder             the files, within limits; the digest
    toml_places, sections, settings    pack.toml, and what it can say (stated)
    outline            what a server can tell before the rest is loaded
    texts              characters that nobody sees
    skills             Markdown with front matter
    asking             a host that describes a Python file
    listed, actions, externals         what it says
    governance, default_governance     the policies of its invocations
    reading            the way in: a folder to a :class:`Pack`
    model, problems    what comes of it
    watching           a pack that is being worked on
    scaffold           a pack to begin with
    factfiles          facts in files
"""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)

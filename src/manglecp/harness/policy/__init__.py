"""Policies as code: what a turn is bound to, as documents that have a digest.

A policy *package* is a handful of documents, one for each thing that can be decided beforehand: which tools there are,
who may call them, how much of a result the model sees, what has to be measured before a policy changes. A package is
read strictly, gives the CallSpec fields of a turn and the constraints it is judged with, and is *pinned*: a pin holds
the digests, and only a promotion that was evaluated and attacked changes it.

    problems, shapes     everything that is wrong with a document, and where; what a document may look like
    kinds, consistency   the documents of a package, and what they say of one another
    package, reading     a package and what it binds a turn to; a package from files
    builtin              the package of turns that only observe
    pins                 what is in force
    reports, doubts      what has to be brought to change it; what of that is no evidence
    promotion            how it changes

Pure: files are read by whoever has a folder, and come in as bytes.
"""

from manglecp.harness.policy.builtin import observe
from manglecp.harness.policy.doubts import doubts
from manglecp.harness.policy.kinds import TIERS
from manglecp.harness.policy.package import PolicyPackage, call_id
from manglecp.harness.policy.pins import Difference, Pin, differences, read_pin
from manglecp.harness.policy.problems import PolicyError
from manglecp.harness.policy.promotion import Unchanged, promote
from manglecp.harness.policy.reading import ENDINGS, package_of, read_package
from manglecp.harness.policy.reports import read_reports

__all__ = [
    "ENDINGS",
    "TIERS",
    "Difference",
    "Pin",
    "PolicyError",
    "PolicyPackage",
    "Unchanged",
    "call_id",
    "differences",
    "doubts",
    "observe",
    "package_of",
    "promote",
    "read_package",
    "read_pin",
    "read_reports",
]

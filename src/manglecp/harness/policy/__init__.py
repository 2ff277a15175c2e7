"""Turn policies: the documents whose rules a turn must satisfy, each with a digest.

A *package* is a set of documents (tools, callers, rendering, evaluation, …). It supplies the call spec fields and
constraints of a turn. A *pin* fixes the package in force; only a promotion, which needs an evaluation and a red-team
report, changes it.

    shapes, kinds     validation; the kinds of documents and their consistency
    package           a package, its files, and what it supplies to a turn; the built-in ``observe`` and ``work``
    promotion         pins and promotions
"""

from manglecp.harness.constraints import TIERS
from manglecp.harness.policy.package import (
    ENDINGS,
    HarnessCall,
    PolicyPackage,
    call_id,
    observe_package,
    package_of,
    read_package,
    work_package,
)
from manglecp.harness.policy.promotion import (
    DocumentDifference,
    PackageUnchanged,
    Pin,
    compare_packages,
    inapplicable_reports,
    promote,
    read_pin,
    read_reports,
)
from manglecp.harness.policy.shapes import PolicyError

__all__ = [
    "ENDINGS",
    "TIERS",
    "DocumentDifference",
    "HarnessCall",
    "PackageUnchanged",
    "Pin",
    "PolicyError",
    "PolicyPackage",
    "call_id",
    "compare_packages",
    "inapplicable_reports",
    "observe_package",
    "package_of",
    "promote",
    "read_package",
    "read_pin",
    "read_reports",
    "work_package",
]

from ..constraints import TIERS as TIERS
from .package import (
    ENDINGS as ENDINGS,
    HarnessCall as HarnessCall,
    PolicyPackage as PolicyPackage,
    call_id as call_id,
    observe_package as observe_package,
    package_of as package_of,
    read_package as read_package,
    work_package as work_package,
)
from .promotion import (
    DocumentDifference as DocumentDifference,
    PackageUnchanged as PackageUnchanged,
    Pin as Pin,
    compare_packages as compare_packages,
    inapplicable_reports as inapplicable_reports,
    promote as promote,
    read_pin as read_pin,
    read_reports as read_reports,
)
from .schemas import PolicyError as PolicyError

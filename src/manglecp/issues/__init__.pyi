from .integrity import (
    InvalidLog as InvalidLog,
    audit as audit,
    export_log as export_log,
    import_log as import_log,
)
from .memory import (
    BlockedIssue as BlockedIssue,
    IssueDetail as IssueDetail,
    IssueMemory as IssueMemory,
    IssueView as IssueView,
)
from .model import (
    DEFAULT_PRIORITY as DEFAULT_PRIORITY,
    DEFAULT_TTL as DEFAULT_TTL,
    EDGE_TYPES as EDGE_TYPES,
    Add as Add,
    AddDependency as AddDependency,
    Close as Close,
    Discover as Discover,
    Issue as Issue,
    IssueEvent as IssueEvent,
    Lease as Lease,
    RemoveDependency as RemoveDependency,
    Status as Status,
    Update as Update,
    system_clock as system_clock,
)
from .sessions import (
    FEATURE_STATUSES as FEATURE_STATUSES,
    Session as Session,
    SessionMemory as SessionMemory,
)
from .tables import (
    StoredIssues as StoredIssues,
    open_issues as open_issues,
)

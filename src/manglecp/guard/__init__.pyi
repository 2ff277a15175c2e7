from .domain import load_guard_domain as load_guard_domain
from .gate import OPERATION as OPERATION, Gate as Gate, principal_name as principal_name, store_path as store_path
from .host_config import (
    GuardError as GuardError,
    HostConfig as HostConfig,
    RelayOptions as RelayOptions,
    ServerEntry as ServerEntry,
)
from .lock import (
    CLASSES as CLASSES,
    Lock as Lock,
    PinnedTool as PinnedTool,
    Servers as Servers,
    changes as changes,
    pin as pin,
)
from .probe import read_listing as read_listing
from .relay import run_relay as run_relay
from .report import Report as Report, read_report as read_report

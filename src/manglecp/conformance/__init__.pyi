from .plan import PlanError as PlanError, read_plan as read_plan
from .report import Report as Report
from .runner import run as run
from .toolhost import (
    Toolhost as Toolhost,
    check_toolhost as check_toolhost,
    toolhost_conversations as toolhost_conversations,
)

from .plan import PlanError as PlanError, read_plan as read_plan
from .report import Report as Report
from .runner import run as run

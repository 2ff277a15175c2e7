from .approval import (
    AutoConfirm as AutoConfirm,
    Secrets as Secrets,
)
from .decisions import (
    decide as decide,
    doubted_step as doubted_step,
)
from .fact_refresh import (
    Troubled as Troubled,
    kept_up_to_date as kept_up_to_date,
)
from .invoker import Invoker as Invoker
from .local import (
    SECRET_FILE as SECRET_FILE,
    Opened as Opened,
    local_secrets as local_secrets,
    open_packs as open_packs,
)
from .progress import OnProgress as OnProgress, RunObserver as RunObserver, progress_reporter as progress_reporter
from .recovery import Worker as Worker
from .results import (
    Answer as Answer,
    decoded as decoded,
)
from .retention import Housekeeping as Housekeeping
from .settings import InvokeSettings as InvokeSettings
from .trial_run import trial as trial

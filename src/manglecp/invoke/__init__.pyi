from .approval import (
    AutoConfirm as AutoConfirm,
    Secrets as Secrets,
    with_approval as with_approval,
)
from .confirmation_secret import (
    SECRET_FILE as SECRET_FILE,
    local_secrets as local_secrets,
)
from .gate import trial as trial
from .invoker import Invoker as Invoker, InvokeSettings as InvokeSettings, Worker as Worker
from .pack_loader import (
    PackOptions as PackOptions,
    load_domain as load_domain,
)
from .progress import OnProgress as OnProgress, RunObserver as RunObserver, progress_reporter as progress_reporter
from .recovery import (
    decide as decide,
    doubted_step as doubted_step,
)
from .results import (
    Answer as Answer,
    decoded as decoded,
)
from .runtime import (
    Opened as Opened,
    PackRuntime as PackRuntime,
    open_packs as open_packs,
    open_swept as open_swept,
    serve_pack_actions as serve_pack_actions,
)

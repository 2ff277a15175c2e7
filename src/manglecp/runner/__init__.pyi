from .dispatched import (
    Authorise as Authorise,
    Dispatched as Dispatched,
    offers as offers,
)
from .errors import (
    LogBroken as LogBroken,
    PatchRefused as PatchRefused,
    PolicyRefused as PolicyRefused,
    RunnerError as RunnerError,
)
from .execution import (
    Execute as Execute,
    Outcome as Outcome,
    StepStatus as StepStatus,
)
from .log import (
    LONGEST as LONGEST,
    RunHeader as RunHeader,
    RunLog as RunLog,
    Verified as Verified,
    verify as verify,
)
from .loop import (
    Budget as Budget,
    EndReason as EndReason,
    Result as Result,
    RunRequest as RunRequest,
    run as run,
)
from .menu import (
    Menu as Menu,
    Offer as Offer,
)
from .playback import (
    Divergence as Divergence,
    Replayed as Replayed,
    replay as replay,
)
from .selection import (
    Kind as Kind,
    Selection as Selection,
    merge as merge,
    parse as parse,
)
from .selectors import (
    ControlMode as ControlMode,
    ExternalPolicy as ExternalPolicy,
    FirstFit as FirstFit,
    Limits as Limits,
    Payload as Payload,
    Selector as Selector,
    Situation as Situation,
)

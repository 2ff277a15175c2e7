from .execution import (
    Authorise as Authorise,
    Dispatched as Dispatched,
    Execute as Execute,
    Outcome as Outcome,
    StepStatus as StepStatus,
    offers as offers,
)
from .log import (
    LONGEST as LONGEST,
    LogBroken as LogBroken,
    PatchRefused as PatchRefused,
    PolicyRefused as PolicyRefused,
    RunHeader as RunHeader,
    RunLog as RunLog,
    RunnerError as RunnerError,
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
from .playback import (
    Divergence as Divergence,
    Replayed as Replayed,
    replay as replay,
)
from .selection import (
    Kind as Kind,
    Menu as Menu,
    Offer as Offer,
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

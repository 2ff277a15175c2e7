from .effects import GatedExecutor as GatedExecutor
from .execution import (
    ActionOutcome as ActionOutcome,
    Authorise as Authorise,
    Execute as Execute,
    PluginExecutor as PluginExecutor,
    StepStatus as StepStatus,
    read_actions as read_actions,
)
from .goals import Goal as Goal, GoalPack as GoalPack
from .log import (
    MAX_LINE_BYTES as MAX_LINE_BYTES,
    BrokenLog as BrokenLog,
    PatchRefused as PatchRefused,
    PolicyRefused as PolicyRefused,
    RunHeader as RunHeader,
    RunLog as RunLog,
    RunnerError as RunnerError,
    VerifiedLog as VerifiedLog,
    verify as verify,
)
from .loop import (
    META_TAG as META_TAG,
    Budget as Budget,
    EndReason as EndReason,
    RunRequest as RunRequest,
    RunResult as RunResult,
    run as run,
)
from .playback import (
    Divergence as Divergence,
    ReplayResult as ReplayResult,
    replay as replay,
)
from .rules import RulesSelector as RulesSelector
from .selection import (
    Menu as Menu,
    MenuAction as MenuAction,
    Selection as Selection,
    SelectionKind as SelectionKind,
    matches_pattern as matches_pattern,
    merge_patch as merge_patch,
    parse_selection as parse_selection,
)
from .selectors import (
    ControlMode as ControlMode,
    ExternalPolicy as ExternalPolicy,
    FirstFit as FirstFit,
    PolicyLimits as PolicyLimits,
    Selector as Selector,
    Situation as Situation,
)

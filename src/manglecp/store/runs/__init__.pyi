from .model import (
    Decision as Decision,
    NewRun as NewRun,
    OwnedRun as OwnedRun,
    Retention as Retention,
    Run as Run,
    RunState as RunState,
    RunView as RunView,
    Step as Step,
    StepEnd as StepEnd,
    StepKind as StepKind,
    StepSettled as StepSettled,
    StepStart as StepStart,
    StepState as StepState,
    Values as Values,
    Verdict as Verdict,
)
from .run_store import (
    DID_NOT_HAPPEN as DID_NOT_HAPPEN,
    POISONED as POISONED,
    RunStore as RunStore,
    Swept as Swept,
    pauses as pauses,
)
from .tables import RUNS as RUNS

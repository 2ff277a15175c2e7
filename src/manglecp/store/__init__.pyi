from .database import (
    PATIENCE as PATIENCE,
    Database as Database,
    Transaction as Transaction,
)
from .errors import (
    Busy as Busy,
    Fenced as Fenced,
    Invalid as Invalid,
    KeyTaken as KeyTaken,
    NoRun as NoRun,
    NotOpen as NotOpen,
    Refused as Refused,
    StoreError as StoreError,
    Unusable as Unusable,
)
from .ledger import (
    KINDS as KINDS,
    Body as Body,
    Entry as Entry,
    EntryKind as EntryKind,
    Note as Note,
    verify_export as verify_export,
)
from .registry import Kept as Kept
from .run_model import (
    Decision as Decision,
    NewRun as NewRun,
    OwnedRun as OwnedRun,
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
from .run_store import pauses as pauses
from .schema import (
    Part as Part,
    append_only as append_only,
)
from .store import (
    Store as Store,
    open_database as open_database,
    open_store as open_store,
    place_of as place_of,
    state_directory as state_directory,
)
from .writer import Writer as Writer

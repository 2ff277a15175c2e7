from .database import (
    PATIENCE as PATIENCE,
    Database as Database,
    Transaction as Transaction,
)
from .errors import (
    Busy as Busy,
    Invalid as Invalid,
    Refused as Refused,
    StoreError as StoreError,
    Unusable as Unusable,
)
from .ledger.checking import verify_export as verify_export
from .ledger.entries import (
    KINDS as KINDS,
    Body as Body,
    Entry as Entry,
    EntryKind as EntryKind,
    Note as Note,
)
from .opening import (
    Store as Store,
    open_database as open_database,
    open_store as open_store,
    place_of as place_of,
    state_directory as state_directory,
)
from .registry import Kept as Kept
from .runs.errors import (
    Fenced as Fenced,
    KeyTaken as KeyTaken,
    NoRun as NoRun,
    NotOpen as NotOpen,
)
from .runs.model import (
    Claimed as Claimed,
    Decision as Decision,
    NewRun as NewRun,
    Run as Run,
    RunState as RunState,
    Shown as Shown,
    Step as Step,
    StepEnd as StepEnd,
    StepKind as StepKind,
    StepSettled as StepSettled,
    StepStart as StepStart,
    StepState as StepState,
    Values as Values,
    Verdict as Verdict,
)
from .runs.waiting import pauses as pauses
from .schema import (
    Part as Part,
    append_only as append_only,
)
from .writer import Writer as Writer

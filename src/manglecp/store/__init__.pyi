from .approvals import Approval as Approval, ApprovalBinding as ApprovalBinding, TooManyPending as TooManyPending
from .database import PATIENCE as PATIENCE, Database as Database, Transaction as Transaction
from .decisions import DecisionRecord as DecisionRecord, StoredDecision as StoredDecision
from .errors import (
    Busy as Busy,
    ChangeRefused as ChangeRefused,
    Fenced as Fenced,
    Invalid as Invalid,
    KeyTaken as KeyTaken,
    NoRun as NoRun,
    NotOpen as NotOpen,
    StoreError as StoreError,
    Unusable as Unusable,
)
from .fact_sources import StoredSource as StoredSource
from .ledger import (
    KINDS as KINDS,
    Body as Body,
    EntryKind as EntryKind,
    LedgerEntry as LedgerEntry,
    NewEntry as NewEntry,
    verify_export as verify_export,
)
from .registry import StoredOffer as StoredOffer
from .run_model import (
    Decision as Decision,
    NewRun as NewRun,
    OwnedRun as OwnedRun,
    Run as Run,
    RunState as RunState,
    RunView as RunView,
    SettledStep as SettledStep,
    StepEnd as StepEnd,
    StepKind as StepKind,
    StepRecord as StepRecord,
    StepStart as StepStart,
    StepState as StepState,
    Values as Values,
    Verdict as Verdict,
)
from .run_store import pauses as pauses
from .schema import append_only as append_only, read_part as read_part
from .store import (
    Store as Store,
    open_database as open_database,
    open_store as open_store,
    parse_location as parse_location,
    state_directory as state_directory,
)
from .writer import Writer as Writer

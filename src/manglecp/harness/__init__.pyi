from .builder import TurnBuilder as TurnBuilder
from .canonical_v1 import canonical as canonical, digest_v1 as digest_v1
from .classes import State as State
from .errors import InvalidEvidence as InvalidEvidence
from .findings import Finding as Finding
from .judging import (
    Judgement as Judgement,
    judge as judge,
)
from .replay import ready_from as ready_from
from .rows import Mutation as Mutation
from .sessions import (
    Refused as Refused,
    Session as Session,
    Turn as Turn,
    session as session,
)
from .states import (
    Blocked as Blocked,
    CallSpec as CallSpec,
    Forged as Forged,
    JoinClosed as JoinClosed,
    MutationReady as MutationReady,
    ToolRequests as ToolRequests,
    ToolResults as ToolResults,
    ToolUse as ToolUse,
    WrongMutation as WrongMutation,
    redeem as redeem,
    redeem_call as redeem_call,
)
from .witness import (
    Witness as Witness,
    verify as verify,
    witness_of as witness_of,
)

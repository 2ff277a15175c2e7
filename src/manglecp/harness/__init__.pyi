from .canonical_v1 import canonical as canonical, digest_v1 as digest_v1
from .classes import Finding as Finding, State as State
from .constraints import Constraints as Constraints
from .evidence import Evidence as Evidence, Mutation as Mutation
from .judgement import (
    Judgement as Judgement,
    judge as judge,
)
from .readers import InvalidEvidence as InvalidEvidence
from .sessions import (
    Refused as Refused,
    Session as Session,
    Turn as Turn,
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
    ready_from as ready_from,
    redeem as redeem,
    redeem_call as redeem_call,
)
from .turn import TurnBuilder as TurnBuilder
from .witness import (
    Witness as Witness,
    verify as verify,
    witness_of as witness_of,
)

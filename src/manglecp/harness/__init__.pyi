from .canonical_v1 import canonical as canonical, digest_v1 as digest_v1
from .classes import Finding as Finding, TurnState as TurnState
from .constraints import HANDLED_STOP_REASONS as HANDLED_STOP_REASONS, Constraints as Constraints
from .evidence import Evidence as Evidence, Mutation as Mutation
from .judgement import Judgement as Judgement, judge as judge
from .readers import InvalidEvidence as InvalidEvidence
from .states import (
    CallSpec as CallSpec,
    ForgedState as ForgedState,
    JoinClosed as JoinClosed,
    MutationReady as MutationReady,
    ToolRequests as ToolRequests,
    ToolResults as ToolResults,
    ToolUse as ToolUse,
    TurnBlocked as TurnBlocked,
    WrongMutation as WrongMutation,
    redeem as redeem,
    redeem_call as redeem_call,
    replay_turn as replay_turn,
)
from .turn import TurnBuilder as TurnBuilder
from .witness import Witness as Witness, verify as verify, witness_of as witness_of

from .adapters import ingest as ingest
from .canonical_v1 import digest_v1 as digest_v1
from .classes import State as State
from .errors import InvalidEvidence as InvalidEvidence
from .findings import Finding as Finding
from .forms import (
    Form as Form,
    Make as Make,
    written as written,
)
from .judging import (
    Judgement as Judgement,
    judge as judge,
)
from .patterns import (
    Parts as Parts,
    expanded as expanded,
    read_pattern as read_pattern,
)
from .replay import ready_from as ready_from
from .rows import Mutation as Mutation
from .sessions import (
    Refused as Refused,
    Session as Session,
    Turn as Turn,
    session as session,
)
from .shapes import (
    Filled as Filled,
    Unclear as Unclear,
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
    Unopened as Unopened,
    WrongMutation as WrongMutation,
    joined as joined,
    redeem as redeem,
    redeem_call as redeem_call,
)
from .witness import (
    Witness as Witness,
    verify as verify,
    witness_of as witness_of,
)

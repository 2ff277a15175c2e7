from .admission import args_digest as args_digest
from .approval import (
    APPROVE as APPROVE,
    OPERATOR as OPERATOR,
    ApprovalService as ApprovalService,
    OperatorApprovals as OperatorApprovals,
)
from .calls import ActionCall as ActionCall, StepOutcome as StepOutcome
from .decision_log import (
    DecisionContent as DecisionContent,
    DecisionDetails as DecisionDetails,
    DecisionInputs as DecisionInputs,
    DecisionLog as DecisionLog,
)
from .decisions import DecisionService as DecisionService, decide_call as decide_call
from .evidence import (
    BASE_CLAIM as BASE_CLAIM,
    ChainTerms as ChainTerms,
    RunTerms as RunTerms,
    claim_of as claim_of,
)
from .explanation import (
    Explanation as Explanation,
    explain_decision as explain_decision,
    record_document as record_document,
    repeat_decision as repeat_decision,
)
from .gate import (
    Turns as Turns,
    check_policy_package as check_policy_package,
)
from .invoker import Invoker as Invoker, InvokeSettings as InvokeSettings, Worker as Worker
from .pack_loader import PackOptions as PackOptions, load_domain as load_domain
from .permits import PermitService as PermitService
from .preview import PREVIEW_CALL as PREVIEW_CALL
from .progress import OnProgress as OnProgress, RunObserver as RunObserver
from .recovery import decide as decide, find_undecided_step as find_undecided_step
from .run_driver import RunResponse as RunResponse, decode_response as decode_response
from .runtime import (
    OpenPacks as OpenPacks,
    PackRuntime as PackRuntime,
    open_packs as open_packs,
    open_store_with_retention as open_store_with_retention,
    prune_decisions as prune_decisions,
    serve_pack_actions as serve_pack_actions,
)
from .shared_facts import PUSH_FACTS as PUSH_FACTS, SharedFacts as SharedFacts, with_stored_facts as with_stored_facts

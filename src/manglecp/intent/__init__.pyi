from .decision import (
    Call as Call,
    Decision as Decision,
    Judgement as Judgement,
    ProofInputs as ProofInputs,
    Scope as Scope,
    Verdict as Verdict,
    approval_waiver as approval_waiver,
    decide as decide,
    judge as judge,
    judged as judged,
    policy_rows as policy_rows,
    refused_intent as refused_intent,
)
from .definition import (
    Argument as Argument,
    ChainStep as ChainStep,
    Definition as Definition,
    Flaw as Flaw,
    Resource as Resource,
    SafetyData as SafetyData,
    Undo as Undo,
    default_arguments as default_arguments,
)
from .domain import Domain as Domain, engine_limits as engine_limits
from .evaluation import PolicyRefusal as PolicyRefusal, request_facts as request_facts
from .fact_sources import Freshness as Freshness, SourceVersion as SourceVersion
from .identity import ANONYMOUS as ANONYMOUS, REVOKED as REVOKED, Identity as Identity
from .manifest_builder import manifest as manifest, survey as survey
from .offers import (
    OfferCodec as OfferCodec,
    OfferService as OfferService,
    macro_not_found as macro_not_found,
)
from .redaction import (
    EXPLAIN_POLICY as EXPLAIN_POLICY,
    make_redactor as make_redactor,
    scrub as scrub,
    scrub_json as scrub_json,
    secret_values as secret_values,
    unchanged as unchanged,
)
from .rendering import describe_fully as describe_fully
from .responder import (
    ToolSelection as ToolSelection,
    request_message as request_message,
    respond as respond,
    warm_up as warm_up,
)
from .run_facts import AFTER_RUN_ARITIES as AFTER_RUN_ARITIES, find_values as find_values

from .action_hosts import (
    containment_problem as containment_problem,
    diagnose_sandbox as diagnose_sandbox,
    profile_of as profile_of,
    serve_actions as serve_actions,
)
from .actions import SAFE as SAFE, action as action, external as external, lifespan as lifespan
from .context import ActionError as ActionError, Context as Context
from .dispatch.breakers import Breaker as Breaker
from .dispatch.catalogue import (
    Catalogue as Catalogue,
    Listing as Listing,
    list_plugin as list_plugin,
    read_catalogue as read_catalogue,
)
from .dispatch.dispatcher import CallOptions as CallOptions, Dispatcher as Dispatcher, ServedPlugin as ServedPlugin
from .dispatch.launch import HostCommand as HostCommand
from .dispatch.messages import (
    ActionResult as ActionResult,
    CallRefused as CallRefused,
    DispatchError as DispatchError,
    ErrorCode as ErrorCode,
    HostCall as HostCall,
    OnReport as OnReport,
    failure as failure,
    failure_of as failure_of,
    is_failure as is_failure,
)
from .dispatch.rights import PlanPermit as PlanPermit, Right as Right
from .external_hosts import serve_externals as serve_externals
from .generator import Part as Part, Progress as Progress, facts as facts
from .generator_hosts import serve_facts as serve_facts
from .hints import Limits as Limits, Secret as Secret
from .passes import FactGenerators as FactGenerators, PassError as PassError, PassProgress as PassProgress
from .state import (
    Artifact as Artifact,
    Slots as Slots,
    StateError as StateError,
    apply_state as apply_state,
    digest_state as digest_state,
    digest_state_fast as digest_state_fast,
    full_state as full_state,
    state_delta as state_delta,
)

from .definition import (
    Argument as Argument,
    Definition as Definition,
    Flaw as Flaw,
    Resource as Resource,
    Step as Step,
    Undo as Undo,
)
from .domain import Domain as Domain
from .identity import (
    ANONYMOUS as ANONYMOUS,
    Identity as Identity,
)
from .lookup import Lookup as Lookup
from .manifest_builder import manifest as manifest
from .pack_survey import survey as survey
from .plain_json import (
    NotPlain as NotPlain,
    plain as plain,
)
from .redaction import (
    EXPLAIN_POLICY as EXPLAIN_POLICY,
    is_secret_setting as is_secret_setting,
    scrub as scrub,
    secret_values as secret_values,
    trust_of as trust_of,
)
from .responding import (
    Answer as Answer,
    respond as respond,
)
from .secret_settings import hiding as hiding

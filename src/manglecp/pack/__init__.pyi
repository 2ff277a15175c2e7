from .diagnostics import (
    PackError as PackError,
    Problems as Problems,
    pack_problem as pack_problem,
)
from .folder import Folder as Folder
from .governance import FOLDER as FOLDER
from .governance_defaults import default_governance as default_governance
from .model import (
    ActionDescription as ActionDescription,
    ExternalDescription as ExternalDescription,
    GeneratorDescription as GeneratorDescription,
    Pack as Pack,
    SkillText as SkillText,
)
from .outline import (
    outlined as outlined,
    read_outline as read_outline,
)
from .reading import read_pack as read_pack
from .scaffold import (
    INTENT as INTENT,
    write_scaffold as write_scaffold,
)
from .sections import (
    Section as Section,
    read_toml as read_toml,
)
from .stated import (
    Disclosure as Disclosure,
    IntentSettings as IntentSettings,
    Invocation as Invocation,
    Profile as Profile,
    Settings as Settings,
    TokenCounting as TokenCounting,
)
from .watching import Watched as Watched

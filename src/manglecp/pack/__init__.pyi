from .diagnostics import PackError as PackError, Problems as Problems, pack_problem as pack_problem
from .folder import Folder as Folder
from .governance import FOLDER as FOLDER, default_governance as default_governance
from .host_listing import ListingError as ListingError, run_listing as run_listing
from .interpreter import PythonEnvironment as PythonEnvironment, host_argv as host_argv
from .loader import read_pack as read_pack
from .model import (
    FILE_WRITING as FILE_WRITING,
    ActionDescription as ActionDescription,
    ExternalDescription as ExternalDescription,
    GeneratorDescription as GeneratorDescription,
    Pack as Pack,
    PythonFile as PythonFile,
    SkillText as SkillText,
)
from .outline import outline_manifest as outline_manifest, read_outline as read_outline
from .scaffold import INTENT as INTENT, write_scaffold as write_scaffold
from .secrets import (
    SecretError as SecretError,
    SecretProvider as SecretProvider,
    SecretSource as SecretSource,
    SecretUse as SecretUse,
    read_secret_sources as read_secret_sources,
)
from .settings import (
    Disclosure as Disclosure,
    DomainSettings as DomainSettings,
    FactSource as FactSource,
    IntentSettings as IntentSettings,
    Invocation as Invocation,
    Profile as Profile,
    SandboxPolicy as SandboxPolicy,
    Settings as Settings,
    TokenCounting as TokenCounting,
)
from .toml_reader import TomlTable as TomlTable, read_toml as read_toml
from .watcher import FolderWatcher as FolderWatcher

from .client import Client as Client
from .server import Server as Server
from .toolhost import (
    ActionError as ActionError,
    Context as Context,
    Limits as Limits,
    Part as Part,
    Progress as Progress,
    Secret as Secret,
    action as action,
    external as external,
    facts as facts,
    lifespan as lifespan,
)

__version__: str

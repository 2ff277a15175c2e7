from .assembly import (
    Source as Source,
    open_core as open_core,
)
from .auth.tokens import TokensError as TokensError
from .binding import (
    Listening as Listening,
    Refused as Refused,
    bind as bind,
    is_loopback as is_loopback,
    refuse_open as refuse_open,
)
from .configuration import load_server_settings as load_server_settings
from .core import Core as Core
from .embedded import Server as Server
from .logs import configure as configure
from .proxies import (
    Network as Network,
    network_of as network_of,
)
from .reloading import reload_on_change as reload_on_change
from .running import (
    serve_http as serve_http,
    serve_streams as serve_streams,
)
from .settings import ServerSettings as ServerSettings
from .streams import Streams as Streams
from .tls import Tls as Tls
from .who import (
    Who as Who,
    described as described,
)
from .workers import run_workers as run_workers

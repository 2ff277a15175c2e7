from .auth.token_editor import TokenEditor as TokenEditor
from .auth.tokens import TokensError as TokensError
from .auth_config import AuthConfig as AuthConfig, describe_auth as describe_auth
from .binding import (
    ListenOptions as ListenOptions,
    ServeError as ServeError,
    bind as bind,
    check_exposure as check_exposure,
    is_loopback as is_loopback,
)
from .config import (
    Network as Network,
    ServerSettings as ServerSettings,
    load_server_settings as load_server_settings,
    parse_network as parse_network,
)
from .core import Core as Core, IdentifiedSessions as IdentifiedSessions
from .embedded import Server as Server
from .logs import configure_logging as configure_logging
from .middleware import Guards as Guards, send_error as send_error
from .pending import json_rpc_refusal as json_rpc_refusal
from .request_limits import RequestLimits as RequestLimits
from .runtime import (
    open_core as open_core,
    reload_on_change as reload_on_change,
    serve_http as serve_http,
    serve_streams as serve_streams,
)
from .streams import Streams as Streams
from .tls import Tls as Tls
from .workers import run_workers as run_workers

from .approval import (
    ApprovalRequest as ApprovalRequest,
    OnConfirm as OnConfirm,
)
from .blocking import BlockingClient as BlockingClient
from .client import Client as Client
from .connection import RetryPolicy as RetryPolicy
from .errors import (
    ClientError as ClientError,
    ConnectionLost as ConnectionLost,
    InvalidResponse as InvalidResponse,
    RequestRefused as RequestRefused,
    ResponseTimeout as ResponseTimeout,
    ServerError as ServerError,
)
from .permit import Permit as Permit
from .results import (
    EvaluationResult as EvaluationResult,
    InvocationResult as InvocationResult,
    Tool as Tool,
)
from .router import Router as Router
from .transports.stdio import StdioTransport as StdioTransport
from .transports.websocket import WebSocketTransport as WebSocketTransport
from .working_state import WorkingState as WorkingState

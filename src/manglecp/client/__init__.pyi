from .blocking import BlockingClient as BlockingClient
from .client import Client as Client
from .connection import RetryPolicy as RetryPolicy
from .consent import (
    OnConfirm as OnConfirm,
    Question as Question,
    Signer as Signer,
)
from .errors import (
    ClientError as ClientError,
    ConnectionLost as ConnectionLost,
    NoAnswer as NoAnswer,
    Refused as Refused,
    ServerError as ServerError,
    Unreadable as Unreadable,
)
from .results import (
    Evaluation as Evaluation,
    Outcome as Outcome,
    Tool as Tool,
)
from .router import Router as Router
from .working_state import WorkingState as WorkingState

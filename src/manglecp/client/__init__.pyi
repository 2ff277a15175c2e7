from .answers import (
    Evaluation as Evaluation,
    Outcome as Outcome,
    Tool as Tool,
)
from .client import Client as Client
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
from .retrying import Retrying as Retrying
from .working_state import WorkingState as WorkingState

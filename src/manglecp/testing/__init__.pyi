from .pack import Pack as Pack, load_pack as load_pack
from .results import (
    Answer as Answer,
    Delta as Delta,
    OfferedTool as OfferedTool,
    Proof as Proof,
    Refused as Refused,
    Run as Run,
)
from .sync_invoker import ActionCall as ActionCall

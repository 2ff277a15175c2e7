"""Where the data of tau-bench is: in the folder of AIRLINE_DATA, or beside the checkout."""

import os
from pathlib import Path

_BESIDE = Path(__file__).parents[3] / "shared" / "data" / "taubench-airline"
DATA = Path(os.environ.get("AIRLINE_DATA", _BESIDE)).absolute()

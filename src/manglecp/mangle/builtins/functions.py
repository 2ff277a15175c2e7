"""All functions, gathered from the modules that define them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .collections_ import COLLECTIONS
from .numbers import NUMBERS
from .reducers import LIST_FOLDS
from .registry import Function, by_name
from .strings import STRINGS
from .times import TIMES

FUNCTIONS: Final[Mapping[str, Function]] = by_name(NUMBERS, COLLECTIONS, STRINGS, TIMES, LIST_FOLDS)

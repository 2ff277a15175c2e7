from ..base.source import (
    Source as Source,
    Span as Span,
    Trust as Trust,
)
from .acceptance import Acceptance as Acceptance
from .builtins.calendar import parse_duration as parse_duration, parse_rfc3339 as parse_rfc3339, zone as zone
from .declarations import (
    Predicate as Predicate,
    collect as collect,
)
from .engine.base import (
    Base as Base,
    evaluate as evaluate,
)
from .engine.compiled import CompiledProgram as CompiledProgram
from .engine.fired import rules_fired as rules_fired
from .engine.rows import (
    all_rows as all_rows,
    changed as changed,
    finder as finder,
    rows_with as rows_with,
)
from .engine.show import show_plan as show_plan
from .errors import (
    AnalysisError as AnalysisError,
    EvalError as EvalError,
    LimitError as LimitError,
    MangleError as MangleError,
    ParseError as ParseError,
    StratificationError as StratificationError,
    ValueFault as ValueFault,
)
from .externals import External as External
from .fact_parser import (
    FactText as FactText,
    parse_facts as parse_facts,
    read_literal as read_literal,
)
from .facts import Fact as Fact
from .formatter import layout as layout
from .generic_types import (
    has_variables as has_variables,
    row_accepts as row_accepts,
)
from .intervals import (
    Interval as Interval,
    holds_somewhere as holds_somewhere,
)
from .lexer import CONSTANT as CONSTANT
from .limits import Limits as Limits
from .matching import (
    Row as Row,
    head_interval as head_interval,
)
from .model import (
    Result as Result,
    Statistics as Statistics,
    read_query as read_query,
)
from .packages import (
    Key as Key,
    resolve as resolve,
)
from .parser import (
    argument_span as argument_span,
    decode as decode,
    parse as parse,
)
from .program import (
    Program as Program,
    Rule as Rule,
)
from .terms import (
    evaluate_term as evaluate_term,
    mentions_now as mentions_now,
)
from .text import (
    duration_text as duration_text,
    fact_text as fact_text,
    instant_text as instant_text,
    value_text as value_text,
)
from .values import (
    FALSE as FALSE,
    INT_MAX as INT_MAX,
    INT_MIN as INT_MIN,
    KIND_NAMES as KIND_NAMES,
    KINDS as KINDS,
    TRUE as TRUE,
    Bytes as Bytes,
    Duration as Duration,
    Float as Float,
    List as List,
    Map as Map,
    Name as Name,
    Pair as Pair,
    RepeatedKey as RepeatedKey,
    Struct as Struct,
    Time as Time,
    Value as Value,
    order_key as order_key,
    part_size as part_size,
)

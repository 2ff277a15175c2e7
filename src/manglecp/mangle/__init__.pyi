from ..base.source import (
    Source as Source,
    Trust as Trust,
)
from .builtins.calendar import parse_duration as parse_duration, parse_rfc3339 as parse_rfc3339, zone as zone
from .declarations import (
    FactAcceptor as FactAcceptor,
    Predicate as Predicate,
    resolve as resolve,
)
from .engine.base import (
    Base as Base,
    evaluate as evaluate,
)
from .engine.compiled import CompiledProgram as CompiledProgram, show_plan as show_plan
from .engine.profile import RuleCost as RuleCost, RuleProfile as RuleProfile
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
from .facts import (
    Fact as Fact,
    Interval as Interval,
    is_nonempty_interval as is_nonempty_interval,
)
from .formatter import layout as layout
from .lexer import CONSTANT as CONSTANT
from .matching import (
    Row as Row,
    constant_value as constant_value,
    evaluate_term as evaluate_term,
    head_interval as head_interval,
)
from .model import Limits as Limits, Statistics as Statistics
from .parser import (
    argument_span as argument_span,
    decode as decode,
    parse as parse,
)
from .printer import (
    NotPlain as NotPlain,
    duration_text as duration_text,
    instant_text as instant_text,
    plain_json as plain_json,
    value_text as value_text,
)
from .program import (
    Program as Program,
    Rule as Rule,
    closure as closure,
)
from .result import (
    Result as Result,
    read_query as read_query,
)
from .syntax import Key as Key
from .types import (
    has_variables as has_variables,
    row_accepts as row_accepts,
)
from .values import (
    FALSE as FALSE,
    INT_MAX as INT_MAX,
    INT_MIN as INT_MIN,
    KIND_NAMES as KIND_NAMES,
    NULL as NULL,
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

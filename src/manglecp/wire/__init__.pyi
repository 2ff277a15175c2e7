from ..base.strict_json import JSON as JSON, Fault as Fault, decode as decode, faults_at as faults_at
from .errors import (
    CODES as CODES,
    CodeRow as CodeRow,
    SchemaError as SchemaError,
    Violation as Violation,
    WireError as WireError,
    budget_exceeded as budget_exceeded,
    did_you_mean as did_you_mean,
    invalid_type as invalid_type,
    malformed as malformed,
    refused_arguments as refused_arguments,
    refused_facts as refused_facts,
    too_large as too_large,
    too_many_facts as too_many_facts,
)
from .fact_checker import FactChecker as FactChecker
from .facts import (
    PROVENANCE_CATEGORIES as PROVENANCE_CATEGORIES,
    UNBOUNDED as UNBOUNDED,
    WILDCARD as WILDCARD,
    Category as Category,
    checked_interval as checked_interval,
    interval as interval,
    parse_fact_argument as parse_fact_argument,
    parse_fact_objects as parse_fact_objects,
    read_eval_time as read_eval_time,
    read_fact as read_fact,
    write_fact as write_fact,
)
from .json_schemas import TYPES as TYPES, all_schemas as all_schemas, schema as schema
from .message_reader import MAX_DEPTH as MAX_DEPTH, receive as receive, receive_from_server as receive_from_server
from .messages import encode as encode
from .predicates import (
    UNTIMED as UNTIMED,
    UNTIMED_MEANINGS as UNTIMED_MEANINGS,
    UPGRADE as UPGRADE,
    PublishedPredicate as PublishedPredicate,
    Schema as Schema,
    Schemas as Schemas,
    direction_of as direction_of,
    direction_problems as direction_problems,
    publish as publish,
    snake_case as snake_case,
)
from .profile import MAX_VIOLATIONS as MAX_VIOLATIONS, Profile as Profile
from .response_text import (
    Heading as Heading,
    coverage_lines as coverage_lines,
    derivation_lines as derivation_lines,
    error_lines as error_lines,
    fact_text as fact_text,
    why_not_lines as why_not_lines,
)
from .schema_validation import (
    compile_schema as compile_schema,
    is_valid as is_valid,
    schema_errors as schema_errors,
    validator_of as validator_of,
)
from .shapes import ANYTHING as ANYTHING, Shape as Shape
from .values import (
    READERS as READERS,
    duration_of_milliseconds as duration_of_milliseconds,
    instant_of_milliseconds as instant_of_milliseconds,
    plain_value as plain_value,
    read_duration as read_duration,
    read_instant as read_instant,
    read_name as read_name,
    read_number as read_number,
    to_json as to_json,
    to_value as to_value,
    wrap_unusual as wrap_unusual,
)
from .vocabulary import (
    API_KEY_HEADER as API_KEY_HEADER,
    CATEGORIES as CATEGORIES,
    MANIFEST_PATH as MANIFEST_PATH,
    MIN_MESSAGE_BYTES as MIN_MESSAGE_BYTES,
    SCHEMES as SCHEMES,
)

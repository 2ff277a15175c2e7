from .checking import Checking as Checking
from .decoding import (
    JSON as JSON,
    decode as decode,
)
from .errors import (
    CODES as CODES,
    Code as Code,
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
from .facts import (
    UNBOUNDED as UNBOUNDED,
    WILDCARD as WILDCARD,
    checked_interval as checked_interval,
    interval as interval,
    read_fact as read_fact,
    write_fact as write_fact,
)
from .faults import Fault as Fault
from .json_schemas import (
    TYPES as TYPES,
    all_schemas as all_schemas,
    schema as schema,
)
from .mangle_facts import (
    one_fact as one_fact,
    patterns as patterns,
    stated as stated,
)
from .profile import (
    MOST_VIOLATIONS as MOST_VIOLATIONS,
    Profile as Profile,
)
from .provenance import (
    PROVENANCE_CATEGORIES as PROVENANCE_CATEGORIES,
    Category as Category,
)
from .publishing import (
    UPGRADE as UPGRADE,
    Published as Published,
    direction_of as direction_of,
)
from .receiving import (
    MAX_DEPTH as MAX_DEPTH,
    receive as receive,
    receive_from_server as receive_from_server,
)
from .schemas import (
    Schema as Schema,
    Schemas as Schemas,
    snake_case as snake_case,
)
from .sending import encode as encode
from .shapes import (
    ANYTHING as ANYTHING,
    Shape as Shape,
)
from .telling import (
    Heading as Heading,
    coverage_lines as coverage_lines,
    derivation_lines as derivation_lines,
    error_lines as error_lines,
    fact_text as fact_text,
    why_not_lines as why_not_lines,
)
from .texts import (
    READERS as READERS,
    duration_of_milliseconds as duration_of_milliseconds,
    instant_of_milliseconds as instant_of_milliseconds,
    read_duration as read_duration,
    read_instant as read_instant,
    read_name as read_name,
    read_number as read_number,
)
from .values import (
    to_json as to_json,
    to_value as to_value,
)
from .vocabulary import (
    API_KEY_HEADER as API_KEY_HEADER,
    CATEGORIES as CATEGORIES,
    MANIFEST_PATH as MANIFEST_PATH,
    MIN_MESSAGE_BYTES as MIN_MESSAGE_BYTES,
    SCHEMES as SCHEMES,
)

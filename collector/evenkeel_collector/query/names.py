"""Allowlists of the settings, formats and functions that a query may name.

The lists cover what clients actually send (clickhouse-connect, Superset, Grafana, DBeaver, curl);
settings, formats and table functions of new releases are refused until they are added here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_FLAG = r"0|1|true|false"
# The engine takes these for numbers.
_BIT = r"0|1"
_COUNT = r"\d{1,19}"
_WORD = r"[A-Za-z0-9_]{0,24}"
_SHORT_TEXT = r"[^/\n]{0,16}|N/A"

_FLAGS = """
aggregate_functions_null_for_empty cast_string_to_dynamic_use_inference extremes
group_by_use_nulls join_use_nulls prefer_column_name_to_alias transform_null_in
output_format_arrow_fixed_string_as_fixed_byte_array output_format_arrow_string_as_string
output_format_binary_encode_types_in_binary_format output_format_binary_write_json_as_string
output_format_bson_string_as_string output_format_csv_crlf_end_of_line
output_format_csv_serialize_tuple_into_separate_columns output_format_decimal_trailing_zeros
output_format_json_array_of_rows output_format_json_escape_forward_slashes
output_format_json_map_as_array_of_tuples output_format_json_named_tuples_as_objects
output_format_json_pretty_print output_format_json_quote_64bit_floats
output_format_json_quote_64bit_integers output_format_json_quote_decimals
output_format_json_quote_denormals output_format_json_skip_null_value_in_named_tuples
output_format_json_validate_utf8 output_format_markdown_escape_special_characters
output_format_native_encode_types_in_binary_format
output_format_native_use_flattened_dynamic_and_json_serialization
output_format_native_write_json_as_string output_format_orc_string_as_string
output_format_parquet_fixed_string_as_fixed_byte_array output_format_parquet_string_as_string
output_format_pretty_highlight_digit_groups output_format_pretty_row_numbers
output_format_trim_fixed_string
output_format_tsv_crlf_end_of_line output_format_write_statistics
"""

# ClickHouse's name for: see everything that was acknowledged before the query.
FRESH = "select_sequential_consistency"
# Settings that a client may set, each with its allowed values. All others are refused: many write
# files, read from the network, or lift limits.
CLIENT_SETTINGS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(values, re.ASCII)
    for name, values in {
        **dict.fromkeys(_FLAGS.split(), _FLAG),
        FRESH: _BIT,
        "date_time_input_format": _WORD,
        "date_time_output_format": _WORD,
        "date_time_overflow_behavior": _WORD,
        "format_csv_delimiter": r"[^\r\n\"']",
        "format_csv_null_representation": _SHORT_TEXT,
        "format_tsv_null_representation": _SHORT_TEXT,
        "limit": _COUNT,
        "max_block_size": r"[1-9]\d{0,5}",
        "offset": _COUNT,
        "output_format_arrow_compression_method": _WORD,
        "output_format_orc_compression_method": _WORD,
        "output_format_parquet_compression_method": _WORD,
        "output_format_pretty_color": _BIT + "|auto",
        "output_format_pretty_display_footer_column_names": _BIT,
        "output_format_pretty_grid_charset": r"UTF-8|ASCII",
        "output_format_pretty_max_rows": _COUNT,
        "output_format_pretty_max_column_pad_width": r"\d{1,4}",
        "output_format_pretty_max_value_width": r"\d{1,5}",
        "result_overflow_mode": r"throw|break",
        "session_timezone": r"([A-Za-z][A-Za-z0-9_+\-/]{0,63})?",
        "union_default_mode": r"|ALL|DISTINCT",
    }.items()
}
# Settings that a client may lower.
LIMITED = (
    "max_execution_time", "max_memory_usage", "max_result_bytes", "max_result_rows", "max_threads",
)  # fmt: skip

# Result formats: none needs a schema, accesses a file or a registry, or speaks another server's
# protocol. The engine ignores the case of their names.
FORMATS = frozenset(
    """
arrow arrowstream avro bsoneachrow csv csvwithnames csvwithnamesandtypes json jsoncolumns
jsoncolumnswithmetadata jsoncompact jsoncompactcolumns jsoncompacteachrow
jsoncompacteachrowwithnames jsoncompacteachrowwithnamesandtypes jsoncompacteachrowwithprogress
jsoncompactstrings jsoncompactstringseachrow jsoncompactstringseachrowwithnames
jsoncompactstringseachrowwithnamesandtypes jsoncompactstringseachrowwithprogress jsoneachrow
jsoneachrowwithprogress jsonl jsonlines jsonobjecteachrow jsonstrings jsonstringseachrow
jsonstringseachrowwithprogress lineasstring markdown md msgpack native ndjson npy null orc parquet
pretty prettycompact prettycompactmonoblock prettycompactnoescapes prettycompactnoescapesmonoblock
prettyjsoneachrow prettyjsonlines prettymonoblock prettyndjson prettynoescapes
prettynoescapesmonoblock prettyspace prettyspacemonoblock prettyspacenoescapes
prettyspacenoescapesmonoblock raw rawblob rawwithnames rawwithnamesandtypes rowbinary
rowbinarywithnames rowbinarywithnamesandtypes sqlinsert tabseparated tabseparatedraw
tabseparatedrawwithnames tabseparatedrawwithnamesandtypes tabseparatedwithnames
tabseparatedwithnamesandtypes tskv tsv tsvraw tsvrawwithnames tsvrawwithnamesandtypes tsvwithnames
tsvwithnamesandtypes values vertical xml
""".split()
)

# Table functions that generate rows from their arguments, or read the store's own tables.
TABLE_FUNCTIONS = frozenset({
    "generate_series", "generaterandom", "generateseries", "merge", "null", "numbers", "numbers_mt",
    "primes", "sqlstandardvalues", "values", "view", "viewifpermitted", "zeros", "zeros_mt",
})  # fmt: skip
# Scalar functions that reach outside the store, describe the machine, or write to the log. A bare
# name is enough to call a function (`arrayMap(file, …)`, `* APPLY file`), so these words are
# refused everywhere.
FUNCTIONS = frozenset({
    "addresstoline", "addresstolinewithinlines", "addresstosymbol", "catboostevaluate", "file",
    "filesystemavailable", "filesystemcapacity", "filesystemunreserved", "getclienthttpheader",
    "getmacro", "getserversetting", "logtrace", "showcertificate",
})  # fmt: skip
# Functions of AI services.
FUNCTION_PREFIX = re.compile(r"ai[A-Z]\w*|AI[A-Z][a-z]\w*")

# Names refused to readers of one tenant's rows, because they would reveal other tenants' rows.
# Functions that read tables without the engine's row filters:
TENANT_TABLE_FUNCTIONS = frozenset({"merge"})
# Clauses that the engine evaluates before the filter:
TENANT_WORDS = frozenset({"EXPLAIN", "PREWHERE", "SAMPLE"})
# Functions that reveal blocks, dictionaries, skipped index ranges, or the state of the process:
TENANT_FUNCTIONS = frozenset({
    "blocknumber", "blockserializedsize", "blocksize", "dumpcolumnstructure", "formatrow",
    "formatrownonewline", "indexhint", "initialquerystarttime", "lowcardinalityindices",
    "lowcardinalitykeys", "neighbor", "rownumberinallblocks", "rownumberinblock",
    "runningaccumulate", "runningconcurrency", "runningdifference",
    "runningdifferencestartingwithfirstvalue", "tid", "tocolumntypename",
    "transactionlatestsnapshot", "transactionoldestsnapshot", "uptime",
})  # fmt: skip
# Models that are fitted block by block, with their combinators.
TENANT_PREFIX = re.compile(r"stochastic", re.IGNORECASE)
# Formats that report progress, which counts rows before the filter.
TENANT_FORMATS = frozenset(name for name in FORMATS if not name.endswith("progress"))

"""What a stream file may say: one flow of events, where it comes from, and the rules for it.

A stream is checked when it is read and does not change afterwards. Times are aware UTC datetimes, durations timedeltas.
"""

from dedup_platform.stream.fields import (
    Attribute,
    FieldHash,
    FieldId,
    FieldList,
    Fields,
    FileModified,
    FileName,
    KafkaAppendTime,
    TimeField,
    ZoneField,
)
from dedup_platform.stream.file import StreamFiles, load_stream, load_streams, read_streams, stream_of_text
from dedup_platform.stream.model import Stream
from dedup_platform.stream.points import Points
from dedup_platform.stream.publish import CustomSink, FilesSink, KafkaSink, PostgresSink, Publish, Sink
from dedup_platform.stream.rules import (
    Aggregate,
    Claims,
    Deduplicate,
    Health,
    Late,
    Maintenance,
    Partitions,
    Reject,
    Retries,
    Sessions,
)
from dedup_platform.stream.s3_path import S3Path
from dedup_platform.stream.source import FilesSource, KafkaSource, Lane
from dedup_platform.stream.time_formats import EPOCH_UNITS, ISO_8601, formats_of
from dedup_platform.stream.values import (
    RESERVED_COLUMNS,
    decimal_of,
    format_duration,
    parse_duration,
)

__all__ = [
    "EPOCH_UNITS",
    "ISO_8601",
    "RESERVED_COLUMNS",
    "Aggregate",
    "Attribute",
    "Claims",
    "CustomSink",
    "Deduplicate",
    "FieldHash",
    "FieldId",
    "FieldList",
    "Fields",
    "FileModified",
    "FileName",
    "FilesSink",
    "FilesSource",
    "Health",
    "KafkaAppendTime",
    "KafkaSink",
    "KafkaSource",
    "Lane",
    "Late",
    "Maintenance",
    "Partitions",
    "Points",
    "PostgresSink",
    "Publish",
    "Reject",
    "Retries",
    "S3Path",
    "Sessions",
    "Sink",
    "Stream",
    "StreamFiles",
    "TimeField",
    "ZoneField",
    "decimal_of",
    "format_duration",
    "formats_of",
    "load_stream",
    "load_streams",
    "parse_duration",
    "read_streams",
    "stream_of_text",
]

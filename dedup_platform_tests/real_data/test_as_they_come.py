"""Records as others write them, read with the stream files of docs/formats.md."""

import gzip
import json
import re
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dedup_platform.stream import load_stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, RAW_EVENTS, SESSIONS
from dedup_platform.testing import HeldClock, light_platform, utc
from dedup_platform.testing.comparison import Row, published_rows
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.conftest import PROJECT

LONGEST = 15
"""Lines of a stream file."""
LONG_AFTER = utc("2030-01-01T00:00")


def stream_file(heading: str) -> str:
    """The stream file of a section."""
    section = (PROJECT / "docs/formats.md").read_text("utf-8").split(f"### {heading}\n")[1]
    text = re.findall(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[0]
    assert len(text.splitlines()) <= LONGEST
    return str(text)


def taken_in(folder: Path, text: str) -> dict[str, list[Row]]:
    """The rows that a stream file makes of the files beside it."""
    (folder / "stream.yaml").write_text(text, "utf-8")
    stream = load_stream(folder / "stream.yaml")
    platform = light_platform(folder / "home", stream, HeldClock(LONG_AFTER))
    platform.ingest(stream.name)
    platform.repair(stream.name)
    assert wrong_rows(platform, stream.name) == []
    return published_rows(platform, stream.name)


def counts(rows: list[Row], column: str) -> dict[Any, int]:
    return dict(Counter(row[column] for row in rows))


@pytest.mark.parametrize(("timeout", "sessions"), [("1m", 334), ("5m", 317)])
def test_githubs_archive(tmp_path: Path, data_dir: Path, timeout: str, sessions: int) -> None:
    (tmp_path / "archive").mkdir()
    shutil.copy(data_dir / "github_archive/head400.json.gz", tmp_path / "archive/2015-01-01-1.json.gz")
    rows = taken_in(tmp_path, stream_file("GitHub's archive").replace("timeout: 2m", f"timeout: {timeout}"))
    assert [len(rows[table]) for table in (RAW_EVENTS, DEDUPLICATED_EVENTS, SESSIONS)] == [400, 400, sessions]
    first = next(row for row in rows[DEDUPLICATED_EVENTS] if row["event_id"] == "2489395767")
    assert {name: first[name] for name in ("entity_id", "event", "repository", "branch", "commits")} == {
        "entity_id": "1310570",
        "event": "PushEvent",
        "repository": "soumith/fbcunn",
        "branch": "master",
        "commits": 4,
    }
    assert first["first_commit"] == "dbd68d30ee1f7b60d404553fc1c6226ebb374c8e"


def calls(data_dir: Path) -> dict[str, list[dict[str, str]]]:
    """The name of each delivery, and its calls."""
    files = sorted((data_dir / "cloudtrail").glob("*.jsonl.gz"))
    return {
        file.name.removesuffix(".jsonl.gz"): [
            json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()
        ]
        for file in files
    }


def as_delivered(call: dict[str, str]) -> dict[str, Any]:
    return {
        "eventVersion": "1.08",
        "userIdentity": {"type": call["identity_type"]},
        "eventTime": call["event_time"],
        "eventName": call["event_name"],
        "sourceIPAddress": call["source_ip"],
        "eventID": call["event_id"],
    }


@pytest.mark.parametrize(("timeout", "sessions"), [("5m", 37), ("15m", 18)])
def test_cloudtrail_as_delivered(tmp_path: Path, data_dir: Path, timeout: str, sessions: int) -> None:
    delivered = calls(data_dir)
    folder = tmp_path / "AWSLogs/111122223333/CloudTrail/us-east-1/2023/07/10"
    folder.mkdir(parents=True)
    for name, records in delivered.items():
        document = json.dumps({"Records": [as_delivered(call) for call in records]}, separators=(",", ":"))
        file = folder / f"111122223333_CloudTrail_us-east-1_{name}.json.gz"
        file.write_bytes(gzip.compress(document.encode()))
    rows = taken_in(tmp_path, stream_file("CloudTrail").replace("timeout: 15m", f"timeout: {timeout}"))
    assert [len(rows[table]) for table in (RAW_EVENTS, DEDUPLICATED_EVENTS, SESSIONS)] == [2900, 2900, sessions]
    events = rows[DEDUPLICATED_EVENTS]
    assert counts(events, "account") == {"111122223333": 2900}
    assert counts(events, "region") == {"us-east-1": 2900}
    places = {row["event_id"]: (row["source_offset"], row["source_index"], row["arrival_time"]) for row in events}
    assert places == {
        call["event_id"]: (0, index, utc(call["delivered_at"].removesuffix("Z")))
        for records in delivered.values()
        for index, call in enumerate(records)
    }
    assert counts(events, "identity") == counts([call for each in delivered.values() for call in each], "identity_type")


def test_a_hive_partitioned_folder(tmp_path: Path, data_dir: Path) -> None:
    """Nested columns, and what stands in the path alone."""
    by_folder = defaultdict(list)
    for call in (call for records in calls(data_dir).values() for call in records):
        by_folder[f"service={call['event_source']}/day={call['event_time'][:10]}"].append(
            {
                "id": call["event_id"],
                "at": utc(call["event_time"].removesuffix("Z")),
                "delivered_at": utc(call["delivered_at"].removesuffix("Z")),
                "who": {"address": call["source_ip"], "kind": call["identity_type"]},
                "what": {"call": call["event_name"], "aws.region": call["region"]},
            }
        )
    for folder, rows in by_folder.items():
        (tmp_path / "calls" / folder).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "calls" / folder / "part-0.parquet")
    found = taken_in(tmp_path, stream_file("A Hive-partitioned folder"))
    assert [len(found[table]) for table in (RAW_EVENTS, DEDUPLICATED_EVENTS, SESSIONS)] == [2900, 2900, 18]
    events = found[DEDUPLICATED_EVENTS]
    assert {f"service={row['service']}/day={row['day']}" for row in events} == by_folder.keys()
    assert counts(events, "region") == {"us-east-1": 2900}
    calls_of = counts(events, "service")
    assert (calls_of["ec2.amazonaws.com"], calls_of["ssm.amazonaws.com"], calls_of["s3.amazonaws.com"]) == (
        892,
        488,
        271,
    )


SEGMENT: list[dict[str, Any]] = [
    {
        "batch": [
            {
                "type": "page",
                "name": "Home",
                "messageId": "m1",
                "anonymousId": "a1",
                "timestamp": "2024-03-01T10:00:00.000Z",
                "context": {"page": {"url": "https://shop.example/?utm=x"}},
            },
            {
                "type": "identify",
                "messageId": "m2",
                "anonymousId": "a1",
                "userId": "u1",
                "timestamp": "2024-03-01T10:01:00.000Z",
                "context": {"traits": {"email": "ada@example.com"}},
            },
            {
                "type": "track",
                "event": "Order Completed",
                "messageId": "m3",
                "userId": "u1",
                "timestamp": "2024-03-01T10:31:00.000Z",
                "context": {
                    "page": {"url": "https://shop.example/cart/done#top"},
                    "traits": {"email": "ada@example.com"},
                },
                "properties": {"revenue": 19.9, "products": [{"sku": "A-1"}, {"sku": "B-2"}]},
            },
        ],
        "sentAt": "2024-03-01T10:31:05.000Z",
    },
    {
        "batch": [
            {
                "type": "track",
                "event": "Order Completed",
                "messageId": "m3",
                "userId": "u1",
                "timestamp": "2024-03-01T10:31:00.000Z",
                "properties": {"revenue": 19.9, "products": [{"sku": "A-1"}]},
            },
            {
                "type": "track",
                "event": "Refunded",
                "messageId": "m4",
                "userId": "u1",
                "anonymousId": "",
                "timestamp": "2024-03-01T11:01:01.000Z",
                "properties": {"revenue": -5.5, "products": []},
            },
        ]
    },
]


def test_segment(tmp_path: Path) -> None:
    """m3 came twice; u1 was here twice, since 30 minutes and a second passed before m4; a1 is who nobody knew yet."""
    (tmp_path / "segment").mkdir()
    (tmp_path / "segment/1.json").write_text("\n".join(map(json.dumps, SEGMENT)))
    rows = taken_in(tmp_path, stream_file("Segment"))
    assert [len(rows[table]) for table in (RAW_EVENTS, DEDUPLICATED_EVENTS, DUPLICATE_EVENTS)] == [5, 4, 1]
    events = {row["event_id"]: row for row in rows[DEDUPLICATED_EVENTS]}
    columns = ("entity_id", "what", "email", "page", "sku", "revenue")
    assert {name: tuple(str(row[column]) for column in columns) for name, row in events.items()} == {
        "m1": ("a1", "Home", "None", "/", "None", "None"),
        "m2": ("u1", "identify", "ada@example.com", "None", "None", "None"),
        "m3": ("u1", "Order Completed", "ada@example.com", "/cart/done", "A-1", "19.90"),
        "m4": ("u1", "Refunded", "None", "None", "None", "-5.50"),
    }
    assert sorted((row["entity_id"], row["event_count"], str(row["revenue"])) for row in rows[SESSIONS]) == [
        ("a1", 1, "None"),
        ("u1", 1, "-5.50"),
        ("u1", 2, "19.90"),
    ]
    assert [(row["source_offset"], row["source_index"]) for row in rows[DUPLICATE_EVENTS]] == [(1, 0)]


IIS = """\
#Software: Microsoft Internet Information Services 10.0
#Version: 1.0
#Date: 2024-03-01 00:00:02
#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port c-ip cs(User-Agent) sc-status time-taken
2024-03-01 00:00:02 10.0.0.1 GET /default.htm a=b&utm_campaign=spring 443 203.0.113.7 Edge,+like+you 200 15
2024-03-01 00:30:02 10.0.0.1 POST /order.aspx - 443 203.0.113.7 Edge,+like+you 302 31
2024-03-01 00:30:02 10.0.0.1 GET /default.htm - 443 198.51.100.2 - 404 0
2024-03-01 00:30:02 10.0.0.1 GET /default.htm - 443 198.51.100.2 - 404 0
#Software: Microsoft Internet Information Services 10.0
#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port c-ip cs(User-Agent) sc-status time-taken
2024-03-01 01:00:03 10.0.0.1 GET /thanks.htm - 443 203.0.113.7 Edge,+like+you 200 7
2024-03-01 01:00:04 10.0.0.1 GET /cut
"""


def test_iis(tmp_path: Path) -> None:
    """203.0.113.7 was here twice: 30 minutes are one session, and a second more is not."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/u_ex240301.log").write_text(IIS)
    rows = taken_in(tmp_path, stream_file("IIS"))
    assert [len(rows[table]) for table in (RAW_EVENTS, DEDUPLICATED_EVENTS, DUPLICATE_EVENTS)] == [6, 4, 1]
    assert counts(rows[RAW_EVENTS], "rejection_reason") == {None: 5, "malformed_record": 1}
    events = sorted(rows[DEDUPLICATED_EVENTS], key=lambda row: (row["event_time"], row["entity_id"]))
    assert [(row["event_time"], row["page"], row["campaign"], row["status"]) for row in events] == [
        (utc("2024-03-01T00:00:02"), "/default.htm", "spring", 200),
        (utc("2024-03-01T00:30:02"), "/default.htm", None, 404),
        (utc("2024-03-01T00:30:02"), "/order.aspx", None, 302),
        (utc("2024-03-01T01:00:03"), "/thanks.htm", None, 200),
    ]
    found = sorted((row["entity_id"], row["event_count"]) for row in rows[SESSIONS])
    assert found == [("198.51.100.2", 1), ("203.0.113.7", 1), ("203.0.113.7", 2)]


EDGAR = """\
name: edgar
source: {kind: files, path: "*.csv", format: csv}
fields:
  entity_id: ip
  event_id: {hash: "*"}
  event_time: {join: [date, time], with: " "}
partitions: {granularity: day, start: 2003-01-01}
sessions: {timeout: TIMEOUT}
"""


@pytest.mark.parametrize(("timeout", "sessions"), [("1m", 176), ("30m", 114)])
def test_edgars_log(tmp_path: Path, data_dir: Path, timeout: str, sessions: int) -> None:
    shutil.copy(data_dir / "edgar_log/log-50k.csv", tmp_path)
    rows = taken_in(tmp_path, EDGAR.replace("TIMEOUT", timeout))
    assert [len(rows[table]) for table in (RAW_EVENTS, DEDUPLICATED_EVENTS, SESSIONS)] == [431, 431, sessions]

"""What a stream file may say, and how each thing that it may not say is told."""

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from dedup_platform.errors import StreamFileError
from dedup_platform.stream import (
    Aggregate,
    Attribute,
    FieldHash,
    FieldId,
    FieldList,
    FileModified,
    FileName,
    Reject,
    Stream,
    TimeField,
    load_stream,
    load_streams,
    read_streams,
)

# The lines' numbers are in what the tests expect.
FULL = dedent(
    """\
    name: clicks
    source:
      kind: files
      path: events/2026-*/part-?.csv
      format: csv
      settle: 250ms
      max_batch_files: 7
      max_batch_bytes: 512MB
    fields:
      entity_id: user
      event_id: [device, counter]
      event_time: {field: t, format: "%d/%m/%Y %H:%M:%S", timezone: Europe/Paris}
      arrival_time: {file_name: "part-(.)", format: epoch_s}
      attributes:
        page: url
        amount: {field: price, type: "decimal(18, 4)"}
        score: {field: score, type: double}
    missing_entity: reject
    partitions: {granularity: hour, start: 2026-01-31T13:00:00}
    buckets: 8
    deduplicate:
      key: [entity_id, event_id, page]
      window: 0s
    sessions:
      timeout: 90m
      aggregates:
        revenue: {sum: amount}
        exit_page: {last: page}
    late: {grace: 0s, settle: 0s, max_delay: 12h, min_rows: 5, max_future: 0s, horizon: 400d, max_runs_per_tick: 1}
    maintenance: {snapshot_age: 30d, min_snapshots: 3, orphan_age: 1d}
    retries: {max_attempts: 5, backoff: 2s, max_backoff: 1m, cool_down: 10m, max_cool_down: 2h}
    reject: {max_ratio: 0.2, min_records: 10}
    health: {max_lag: 2h, max_stale: 30m, max_reject_ratio: 0.5, max_age: 36h, quiet_days: [saturday, sunday]}
    """
)
SHORTEST = dedent(
    """\
    name: clicks
    source: {kind: files, path: "*.json", format: json}
    fields: {entity_id: user, event_id: id, event_time: t}
    partitions: {granularity: day, start: 2026-01-31}
    sessions: {timeout: 30m}
    """
)


def stream(folder: Path, text: str) -> Stream:
    file = folder / "clicks.yaml"
    file.write_text(text)
    return load_stream(file)


def problems(folder: Path, text: str) -> list[str]:
    """The problems of a stream file, without the file's name: `line: key: reason`."""
    with pytest.raises(StreamFileError) as caught:
        stream(folder, text)
    start = f"{folder / 'clicks.yaml'}:"
    assert all(problem.startswith(start) for problem in caught.value.problems)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return [problem.removeprefix(start) for problem in caught.value.problems]


def problem(folder: Path, old: str, new: str) -> str:
    """The one problem that FULL has after `old` is replaced by `new`."""
    assert FULL.count(old) == 1, old
    [only] = problems(folder, FULL.replace(old, new))
    return only


def test_every_key_of_a_stream_file(tmp_path: Path) -> None:
    clicks = stream(tmp_path, FULL)
    assert clicks.name == "clicks"
    assert clicks.origin == tmp_path / "clicks.yaml"
    assert clicks.files.root == tmp_path / "events"
    assert clicks.files.pattern == "2026-*/part-?.csv"
    assert clicks.files.settle == timedelta(milliseconds=250)
    assert (clicks.files.max_batch_files, clicks.source.max_batch_bytes) == (7, 512_000_000)
    assert clicks.fields.event_id == FieldList(fields=("device", "counter"))
    assert clicks.fields.event_time == TimeField(field="t", format="%d/%m/%Y %H:%M:%S", timezone="Europe/Paris")
    assert clicks.fields.arrival_time == FileName(file_name="part-(.)", format="epoch_s")
    assert clicks.attributes == {
        "page": Attribute(field="url", type="string"),
        "amount": Attribute(field="price", type="decimal(18,4)"),
        "score": Attribute(field="score", type="double"),
    }
    assert clicks.missing_entity == "reject"
    assert clicks.partitions.start == datetime(2026, 1, 31, 13, tzinfo=UTC)
    assert clicks.buckets == 8
    assert clicks.deduplicate.key == ("entity_id", "event_id", "page")
    assert clicks.deduplicate.window == timedelta(0)
    assert clicks.session_timeout == timedelta(minutes=90)
    assert clicks.aggregates == {
        "revenue": Aggregate(function="sum", attribute="amount"),
        "exit_page": Aggregate(function="last", attribute="page"),
    }
    assert clicks.late.horizon == timedelta(days=400)
    assert (clicks.late.min_rows, clicks.late.max_runs_per_tick) == (5, 1)
    assert clicks.maintenance.snapshot_age == timedelta(days=30)
    assert (clicks.maintenance.min_snapshots, clicks.maintenance.orphan_age) == (3, timedelta(days=1))
    assert (clicks.retries.max_attempts, clicks.retries.cool_down) == (5, timedelta(minutes=10))
    assert clicks.reject == Reject(max_ratio=0.2, min_records=10)
    assert (clicks.health.max_lag, clicks.health.max_age) == (timedelta(hours=2), timedelta(hours=36))
    assert clicks.health.quiet_weekdays == {5, 6}


def test_what_a_stream_file_leaves_out_has_a_default(tmp_path: Path) -> None:
    clicks = stream(tmp_path, SHORTEST)
    assert clicks.fields.event_id == FieldId(field="id")
    assert clicks.arrival_time == FileModified()
    assert clicks.attributes == {}
    assert clicks.files.settle == timedelta(seconds=2)
    assert (clicks.files.max_batch_files, clicks.source.max_batch_bytes) == (1000, 2**30)
    assert (clicks.missing_entity, clicks.buckets) == ("keep", 0)
    assert clicks.deduplicate.key == ("entity_id", "event_id")
    assert clicks.deduplicate.window == timedelta(days=1)
    assert clicks.aggregates == {}
    assert clicks.late.model_dump() == {
        "grace": timedelta(hours=1),
        "settle": timedelta(seconds=60),
        "max_delay": timedelta(minutes=15),
        "min_rows": 1,
        "max_future": timedelta(minutes=10),
        "horizon": None,
        "max_partitions_per_run": 31,
        "max_runs_per_tick": 10,
    }
    assert clicks.maintenance.model_dump() == {
        "snapshot_age": timedelta(days=7),
        "min_snapshots": 10,
        "orphan_age": timedelta(days=3),
    }
    assert clicks.retries.model_dump() == {
        "max_attempts": 3,
        "backoff": timedelta(seconds=1),
        "max_backoff": timedelta(minutes=5),
        "cool_down": timedelta(minutes=5),
        "max_cool_down": timedelta(hours=1),
    }
    assert clicks.reject is None, "no batch is held"
    assert Reject(max_ratio=0.0).min_records == 100
    assert clicks.health.model_dump() == {
        "max_lag": timedelta(hours=1),
        "max_stale": timedelta(hours=1),
        "max_reject_ratio": 0.1,
        "max_age": None,
        "quiet_days": (),
    }
    # Else what failed before there was such a key would be tried again at once.
    assert "health" not in clicks.model_dump_json()


def test_a_stream_survives_pickling_and_both_dumps(tmp_path: Path) -> None:
    clicks = stream(tmp_path, FULL)
    copy = pickle.loads(pickle.dumps(clicks))
    assert (copy, copy.origin, copy.files.root) == (clicks, clicks.origin, clicks.files.root)
    assert Stream.model_validate(clicks.model_dump()) == clicks
    assert Stream.model_validate_json(clicks.model_dump_json()) == clicks


def test_where_a_stream_file_lies_is_not_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    here, there = stream(tmp_path, FULL), stream(tmp_path / "elsewhere", FULL)
    assert here == there
    assert here.origin != there.origin
    assert here != stream(tmp_path, SHORTEST)


@pytest.mark.parametrize(
    ("path", "root", "pattern"),
    [
        ("day.csv", "", "day.csv"),
        ("a/b/day.csv", "a/b", "day.csv"),
        ("a/*/day.csv", "a", "*/day.csv"),
        ("a/**/[0-9].csv", "a", "**/[0-9].csv"),
        ("../a/*.csv", "../a", "*.csv"),
        ("a/../*.csv", "", "*.csv"),
        ("/data/a/*.csv", "/data/a", "*.csv"),
        ("/*.csv", "/", "*.csv"),
    ],
)
def test_root_is_the_folder_in_front_of_the_first_glob(tmp_path: Path, path: str, root: str, pattern: str) -> None:
    source = stream(tmp_path, SHORTEST.replace('"*.json"', f'"{path}"')).files
    assert source.root == (tmp_path / root).resolve()
    assert source.pattern == pattern


@pytest.mark.parametrize(
    ("spelling", "event_id"),
    [
        ("id", FieldId(field="id")),
        ("{field: id}", FieldId(field="id")),
        ("[a, b]", FieldList(fields=("a", "b"))),
        ('{hash: "*"}', FieldHash(hash="*")),
        ("{hash: [a, b]}", FieldHash(hash=("a", "b"))),
    ],
)
def test_spellings_of_event_id(tmp_path: Path, spelling: str, event_id: object) -> None:
    assert stream(tmp_path, SHORTEST.replace("event_id: id", f"event_id: {spelling}")).fields.event_id == event_id


@pytest.mark.parametrize(
    ("spelling", "arrival_time"),
    [
        ("seen", TimeField(field="seen")),
        ("{field: seen, format: epoch_ms}", TimeField(field="seen", format="epoch_ms")),
        ("{file_name: '^([^_]+)_', format: '%Y%m%dT%H%MZ'}", FileName(file_name="^([^_]+)_", format="%Y%m%dT%H%MZ")),
        ("{file_modified: true}", FileModified()),
    ],
)
def test_spellings_of_arrival_time(tmp_path: Path, spelling: str, arrival_time: object) -> None:
    text = SHORTEST.replace("event_time: t", f"event_time: t, arrival_time: {spelling}")
    assert stream(tmp_path, text).fields.arrival_time == arrival_time


@pytest.mark.parametrize(
    ("start", "moment"),
    [
        ("2010-12-01", datetime(2010, 12, 1, tzinfo=UTC)),
        ('"2010-12-01"', datetime(2010, 12, 1, tzinfo=UTC)),
        ("2010-12-01T00:00:00Z", datetime(2010, 12, 1, tzinfo=UTC)),
        ("2010-12-01T02:00:00+02:00", datetime(2010, 12, 1, tzinfo=UTC)),
        ("1970-01-01", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_start_is_a_date_or_a_time_quoted_or_not(tmp_path: Path, start: str, moment: datetime) -> None:
    assert stream(tmp_path, SHORTEST.replace("2026-01-31", start)).partitions.start == moment


def test_day_partitions_count_from_1970_and_have_dagsters_keys(tmp_path: Path) -> None:
    days = stream(tmp_path, SHORTEST).partitions
    assert days.length == timedelta(days=1)
    assert days.ordinal(datetime(1970, 1, 1, tzinfo=UTC)) == 0
    assert days.ordinal(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1
    assert days.ordinal(datetime(2026, 1, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == 20_484
    assert days.start_of(20_484) == datetime(2026, 1, 31, tzinfo=UTC)
    assert days.key(20_484) == "2026-01-31"
    assert days.ordinal_of("2026-01-31") == 20_484


def test_hour_partitions_count_from_1970_and_have_dagsters_keys(tmp_path: Path) -> None:
    hours = stream(tmp_path, FULL).partitions
    assert hours.length == timedelta(hours=1)
    ordinal = hours.ordinal(datetime(2026, 1, 31, 13, 59, 59, tzinfo=UTC))
    assert ordinal == 20_484 * 24 + 13
    assert hours.start_of(ordinal) == datetime(2026, 1, 31, 13, tzinfo=UTC)
    assert hours.key(ordinal) == "2026-01-31-13:00"
    assert hours.ordinal_of("2026-01-31-13:00") == ordinal


@pytest.mark.parametrize("key", ["2026-1-31", "2026-01-31-13:30", "20260131", "", "2026-02-30", "2026-01-31T13:00"])
def test_a_text_that_is_no_key_of_a_partition(tmp_path: Path, key: str) -> None:
    for text in (SHORTEST, FULL):
        with pytest.raises(ValueError, match="is no key of a"):
            stream(tmp_path, text).partitions.ordinal_of(key)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("60s", timedelta(minutes=1)),
        ("30m", timedelta(minutes=30)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
    ],
)
def test_durations(tmp_path: Path, text: str, duration: timedelta) -> None:
    assert stream(tmp_path, SHORTEST.replace("30m", text)).session_timeout == duration


@pytest.mark.parametrize("text", ["30", "1.5h", "30 m", "-5m", "30min", "1h30m", "PT30M", "true", "", "[30m]"])
def test_bad_duration(tmp_path: Path, text: str) -> None:
    reason = problem(tmp_path, "timeout: 90m", f"timeout: {text}")
    assert reason.startswith("25: sessions.timeout: is no duration; write a whole number and a unit: 250ms, 60s, 30m")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # unknown keys, with what is meant and what is allowed
        (
            "missing_entity:",
            "missing_entities:",
            "18: missing_entities: unknown key; did you mean missing_entity?; all",
        ),
        (
            "settle: 250ms",
            "setle: 250ms",
            "6: source.setle: unknown key; did you mean settle?; allowed: format, csv, js",
        ),
        (
            "min_rows: 5",
            "rows: 5",
            "29: late.rows: unknown key; did you mean min_rows?; allowed: grace, settle, max_de",
        ),
        (
            "{field: score, type",
            "{fields: x, field: s, type",
            "17: fields.attributes.score.fields: unknown key; did you ",
        ),
        ("field: t, ", "field: t, zone: UTC, ", "12: fields.event_time.zone: unknown key; did you mean timezone?; all"),
        ('"part-(.)", ', '"(.)", zone: UTC, ', "13: fields.arrival_time.zone: unknown key; did you mean timezone?; al"),
        # names
        ("name: clicks", "name: Clicks", "1: name: is no name; write lower-case letters, digits and _, starting with"),
        ("name: clicks", "name: system", "1: name: is taken; choose a name other than default, global_temp, informati"),
        ("name: clicks", "name: 7", "1: name: must be a valid string (got 7)"),
        ("page: url", "Page: url", "15: fields.attributes.Page: is no name; write lower-case letters, digits and _"),
        ("page: url", "event_time: url", "15: fields.attributes.event_time: is a column of the platform; choose a na"),
        ("page: url", "winner_source: url", "15: fields.attributes.winner_source: is a column of the platform"),
        ("revenue:", "session_id:", "27: sessions.aggregates.session_id: is a column of the platform; choose a name"),
        # source
        ("kind: files", "kind: file", "3: source.kind: must be 'files' or 'kafka' (got 'file'); did you mean files?"),
        ("format: csv", "format: csv\n  json: {records: a}", "2: source: json is for the format json, not for csv"),
        ("format: csv", "format: cvs", "5: source.format: must be 'csv', 'json', 'parquet', 'avro' or 'protobuf' (got"),
        ("events/2026-*/part-?.csv", "gs://b/*", "4: source.path: must be a local path, absolute or relative to the s"),
        ("events/2026-*/part-?.csv", r'"\ud800*"', "4: source.path: has half a character, which UTF-8 does not write"),
        ("events/2026-*/part-?.csv", '"ev\\0nts/*"', "4: source.path: has a NUL character, which no path may have"),
        ("events/2026-*/part-?.csv", "events/", "4: source.path: names no files; write a pattern like events/*.csv.g"),
        ("512MB", "512mb", "8: source.max_batch_bytes: is no size; write bytes, or a whole number and a unit (B, KB, "),
        ("512MB", "0", "8: source.max_batch_bytes: is no size"),
        ("max_batch_files: 7", "max_batch_files: 0", "7: source.max_batch_files: must be greater than or equal to 1"),
        ("max_batch_files: 7", "max_batch_files: true", "7: source.max_batch_files: must be a valid integer (got Tru"),
        # fields
        ("entity_id: user\n", "entity_id: ''\n", "10: fields.entity_id: is empty; write the name of a field of the r"),
        (
            "entity_id: user\n",
            "entity_id: 7\n",
            "10: fields.entity_id: must be a field: a name, a path like actor.id or items[0].sku, a lis",
        ),
        (
            "entity_id: user\n",
            "entity_id: [0, a]\n",
            "10: fields.entity_id: a list of steps begins by the name of a field",
        ),
        (
            "entity_id: user\n",
            "entity_id: [a, -1]\n",
            "10: fields.entity_id: -1 is no step; a step is a name, or a place ",
        ),
        ("[device, counter]", "[]", "11: fields.event_id: "),
        ("[device, counter]", "[a, a]", "11: fields.event_id: names one field twice (got ['a', 'a'])"),
        ("[device, counter]", "{md5: a}", "11: fields.event_id: must be a field name, a list of field names, or {hash"),
        ("[device, counter]", "{hash: a}", '11: fields.event_id.hash: must be "*" (all fields) or a list of distinct'),
        (
            "%d/%m/%Y %H:%M:%S",
            "epoch_millis",
            "12: fields.event_time.format: is no format; did you mean epoch_ms? Allow",
        ),
        ("%d/%m/%Y %H:%M:%S", "unix", "12: fields.event_time.format: is no format; did you mean epoch_s? Allowed: epo"),
        ("%d/%m/%Y %H:%M:%S", "%Q", "12: fields.event_time.format: is no strptime format; write one like %Y-%m-%d %H"),
        ("%d/%m/%Y %H:%M:%S", "%H:%M", "12: fields.event_time.format: does not tell the year, the month and the day"),
        (
            "Europe/Paris",
            "Paris",
            "12: fields.event_time.timezone: is no time zone; write a name like UTC or Europe/Pa",
        ),
        ("Europe/Paris", "../UTC", "12: fields.event_time.timezone: is no time zone"),
        (
            '{file_name: "part-(.)", format: epoch_s}',
            "{kafka_append_time: true}",
            "13: fields.arrival_time: files are no topic; allowed: a field, file_name, file_modified",
        ),
        ('"part-(.)"', '"part"', "13: fields.arrival_time.file_name: must have exactly one group, the time; it has 0"),
        ('"part-(.)"', '"("', "13: fields.arrival_time.file_name: is no regular expression: missing ), unterminated s"),
        (
            '{file_name: "part-(.)", format: epoch_s}',
            "{file_modified: false}",
            "13: fields.arrival_time.file_modified:",
        ),
        (
            '{file_name: "part-(.)", format: epoch_s}',
            "{}",
            "13: fields.arrival_time: must be a field, {file_name: a re",
        ),
        (
            '"decimal(18, 4)"',
            "number",
            "16: fields.attributes.amount.type: is no type; allowed: string, long, double, b",
        ),
        ('"decimal(18, 4)"', '"decimal(39,0)"', "16: fields.attributes.amount.type: is no type"),
        ('"decimal(18, 4)"', '"decimal(4,5)"', "16: fields.attributes.amount.type: is no type"),
        ("type: double", "type: double, format: epoch_s", "17: fields.attributes.score: format is for timestamp and"),
        ("type: double", "type: date, format: epoch_s", "17: fields.attributes.score: a date has no epoch_s"),
        (
            "missing_entity: reject",
            "missing_entity: drop",
            "18: missing_entity: must be 'keep' or 'reject' (got 'drop'",
        ),
        # partitions and buckets
        ("granularity: hour", "granularity: week", "19: partitions.granularity: must be 'day' or 'hour' (got 'week')"),
        ("2026-01-31T13:00:00", "soon", "19: partitions.start: is no date; write one like 2026-01-31 (got 'soon')"),
        ("2026-01-31T13:00:00", "20260131", "19: partitions.start: is no date"),
        ("2026-01-31T13:00:00", "1969-12-31", "19: partitions.start: is too early; partitions start at 1970-01-01"),
        ("2026-01-31T13:00:00", "2026-01-31T13:30:00", "19: partitions: start must be the beginning of a UTC hour, n"),
        ("buckets: 8", "buckets: 6", "20: buckets: must be a power of two from 1 to 4096, or 0 to choose it"),
        ("buckets: 8", "buckets: 8192", "20: buckets: must be less than or equal to 4096 (got 8192)"),
        ("buckets: 8", "buckets: -1", "20: buckets: must be greater than or equal to 0 (got -1)"),
        ("buckets: 8", "buckets: true", "20: buckets: must be a valid integer (got True)"),
        # the key
        ("[entity_id, event_id, page]", "[event_id]", "22: deduplicate.key: must contain entity_id: copies are found"),
        (
            "[entity_id, event_id, page]",
            "[entity_id, url]",
            "22: deduplicate.key[1]: 'url' is no column for a key; all",
        ),
        ("[entity_id, event_id, page]", "[entity_id, event_time]", "22: deduplicate.key[1]: 'event_time' is no column"),
        ("[entity_id, event_id, page]", "[entity_id, score]", "22: deduplicate.key[1]: 'score' is a double, which is"),
        ("[entity_id, event_id, page]", "[entity_id, entity_id]", "22: deduplicate.key: names one field twice"),
        ("window: 0s", "window: 99999999d", "23: deduplicate.window: is too long; a duration is at most 36500d"),
        # sessions
        ("timeout: 90m", "timeout: 0s", "25: sessions.timeout: must be longer than 0s (got '0s')"),
        (
            "{sum: amount}",
            "{sum: score}",
            "27: sessions.aggregates.revenue: a sum of doubles depends on their order; ma",
        ),
        (
            "{sum: amount}",
            "{sum: page}",
            "27: sessions.aggregates.revenue: 'page' is a string; a sum needs a long or a",
        ),
        (
            "{sum: amount}",
            "{sum: price}",
            "27: sessions.aggregates.revenue: 'price' is no attribute of this stream; all",
        ),
        (
            "{sum: amount}",
            "{avg: amount}",
            "27: sessions.aggregates.revenue: must be one function and an attribute, lik",
        ),
        ("{sum: amount}", "{sum: amount, max: amount}", "27: sessions.aggregates.revenue: must be one function and a"),
        (
            "{sum: amount}",
            "amount",
            "27: sessions.aggregates.revenue: must be one function and an attribute, like {sum:",
        ),
        # late
        ("min_rows: 5", "min_rows: 0", "29: late.min_rows: must be greater than or equal to 1 (got 0)"),
        ("settle: 0s, max", "settle: 13h, max", "29: late: max_delay, the longest wait, must be at least settle, the "),
        ("horizon: 400d", "horizon: 0s", "29: late.horizon: must be longer than 0s (got '0s')"),
        # maintenance
        ("orphan_age: 1d", "orphan_age: 23h", "30: maintenance.orphan_age: must be at least 1d: a run that is at work"),
        ("snapshot_age: 30d", "snapshot_age: 1h", "30: maintenance.snapshot_age: must be at least 1d: a run that is "),
        ("min_snapshots: 3", "min_snapshots: 0", "30: maintenance.min_snapshots: must be greater than or equal to 1"),
        # retries
        ("max_attempts: 5", "max_attempts: 0", "31: retries.max_attempts: must be greater than or equal to 1 (got 0)"),
        ("backoff: 2s", "backoff: 0s", "31: retries.backoff: must be longer than 0s (got '0s')"),
        ("max_backoff: 1m", "max_backoff: 1s", "31: retries: max_backoff, the longest pause, must be at least backoff"),
        ("cool_down: 10m", "cool_down: 3h", "31: retries: max_cool_down, the longest one, must be at least cool_down"),
        # reject
        ("max_ratio: 0.2", "max_ratio: 1", "32: reject.max_ratio: must be less than 1 (got 1)"),
        ("max_ratio: 0.2", "max_ratio: -0.1", "32: reject.max_ratio: must be greater than or equal to 0 (got -0.1)"),
        ("max_ratio: 0.2", "max_ratio: '0.2'", "32: reject.max_ratio: "),
        ("max_ratio: 0.2, ", "", "32: reject.max_ratio: is missing"),
        ("min_records: 10}", "min_records: 0}", "32: reject.min_records: must be greater than or equal to 1 (got 0)"),
        # health
        (
            "max_reject_ratio: 0.5",
            "max_reject_ratio: 2",
            "33: health.max_reject_ratio: must be less than or equal to 1",
        ),
        ("saturday, ", "caturday, ", "33: health.quiet_days[0]: must be 'monday', 'tuesday', 'wednesday', "),
        (
            "[saturday, sunday]",
            "[monday, tuesday, wednesday, thursday, friday, saturday, sunday]",
            "33: health.quiet_days: names every day, so nothing would ever have to come; leave max_age out for that",
        ),
    ],
)
def test_what_a_stream_file_may_not_say(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert problem(tmp_path, old, new).startswith(expected)


def test_a_decimal_without_quotes_inside_braces(tmp_path: Path) -> None:
    cut, rest = sorted(problems(tmp_path, FULL.replace('"decimal(18, 4)"', "decimal(18,4)")), key=len, reverse=True)
    assert cut.endswith("""inside { } write it in quotes: "decimal(18,4)" (got 'decimal(18')""")
    assert rest.startswith("16: fields.attributes.amount.4): unknown key")


def test_a_misspelt_key_that_must_be_there_is_two_problems(tmp_path: Path) -> None:
    assert problems(tmp_path, FULL.replace("timeout:", "timout:")) == [
        "24: sessions.timeout: is missing",
        "25: sessions.timout: unknown key; did you mean timeout?; allowed: timeout, aggregates",
    ]


def test_every_problem_is_listed_by_line(tmp_path: Path) -> None:
    text = FULL.replace("buckets: 8", "buckets: 6").replace("90m", "90").replace("kind: files", "kind: filez")
    assert [line.split(":")[0] for line in problems(tmp_path, text)] == ["3", "20", "25"]


def test_missing_parts_are_named(tmp_path: Path) -> None:
    assert problems(tmp_path, "name: clicks\nfields: {}\n") == [
        "1: partitions: is missing",
        "1: source: is missing",
        "2: fields.entity_id: is missing",
        "2: fields.event_id: is missing",
        "2: fields.event_time: is missing",
    ]


def test_a_part_that_is_no_mapping(tmp_path: Path) -> None:
    [reason] = problems(tmp_path, SHORTEST.replace("{timeout: 30m}", "30m"))
    assert reason == "5: sessions: must be a mapping; allowed keys: timeout, aggregates (got '30m')"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1: must be a mapping with the keys name, source, fields, missing_entity, partitions, buckets, dedu"),
        ("# nothing\n", "1: must be a mapping with the keys"),
        ("- name: clicks\n", "1: must be a mapping with the keys"),
        ("name: a\nname: b\n", "2: name: the key is given twice; the first is in line 1"),
        ("name: a\nsource: {kind: files, kind: files}\n", "2: kind: the key is given twice; the first is in line 2"),
        ("name: a\nsource: [\n", "3: is not YAML: "),
        ("name: a\n\tsource: b\n", "2: is not YAML: "),
        ("name: a\n---\nname: b\n", "2: is not YAML: but found another document"),
        ("name: a\nwhen: 2026-02-30\n", "1: is not YAML: "),
        ("name: !!python/name:os.system\n", "1: is not YAML: "),
        ("name: &a [*a]\n", "1: "),
        ("name: a\x00b\n", "1: is not YAML: "),
        (f"name: a\nbuckets: 0x{'f' * 4000}\n", "2: is not YAML: a number is larger than 64 bits"),
        (f"name: a\nbuckets: -{2**63}\n", "2: is not YAML: a number is larger than 64 bits"),
    ],
)
def test_what_is_no_stream_file_at_all(tmp_path: Path, text: str, expected: str) -> None:
    assert problems(tmp_path, text)[0].startswith(expected)


def test_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "clicks.yaml"
    file.write_bytes(b"name: clicks\nsource: caf\xe9\n")
    with pytest.raises(StreamFileError, match=r"clicks.yaml:2: is not UTF-8"):
        load_stream(file)


@pytest.mark.parametrize("name", ["absent.yaml", "absent"])
def test_a_missing_file_or_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(StreamFileError, match=f"{name}: No such file or directory"):
        load_streams(tmp_path / name)


def test_a_folder_without_stream_files(tmp_path: Path) -> None:
    (tmp_path / ".hidden.yaml").write_text(SHORTEST)
    with pytest.raises(StreamFileError, match=r"has no stream file \(\*.yaml or \*.yml\)"):
        load_streams(tmp_path)


def test_a_folder_gives_its_streams_by_name_in_order_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "b.yml").write_text(SHORTEST.replace("clicks", "first"))
    (tmp_path / "c.yaml").write_text(SHORTEST.replace("clicks", "another"))
    (tmp_path / "readme.txt").write_text("no stream")
    assert list(load_streams(tmp_path)) == ["first", "another"]
    assert list(load_streams(tmp_path / "b.yml")) == ["first"]


def test_two_streams_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SHORTEST)
    (tmp_path / "b.yaml").write_text("# a copy\n" + SHORTEST)
    with pytest.raises(StreamFileError) as caught:
        load_streams(tmp_path)
    taken = "name: 'clicks' is the name of the stream in {}, too; every stream needs its own"
    assert caught.value.problems == (
        f"{tmp_path / 'a.yaml'}:1: {taken.format('b.yaml')}",
        f"{tmp_path / 'b.yaml'}:2: {taken.format('a.yaml')}",
    )
    (tmp_path / "c.yaml").write_text(SHORTEST.replace("clicks", "another"))
    assert list(read_streams(tmp_path).streams) == ["another"], "nobody knows which of the two is meant"


def test_problems_of_all_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SHORTEST.replace("30m", "30"))
    (tmp_path / "b.yaml").write_text(SHORTEST.replace("day", "week"))
    with pytest.raises(StreamFileError) as caught:
        load_streams(tmp_path)
    assert [Path(problem.split(":")[0]).name for problem in caught.value.problems] == ["a.yaml", "b.yaml"]


def test_the_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(StreamFileError("a.yaml:1: x", "b.yaml:2: y")))
    assert error.problems == ("a.yaml:1: x", "b.yaml:2: y")

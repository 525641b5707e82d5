"""What a stream file says of consumers: sinks, and which columns matter downstream."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from dedup_platform.errors import StreamFileError
from dedup_platform.stream import CustomSink, KafkaSink, Points, PostgresSink, Stream, load_stream
from dedup_platform.testing import make_stream
from dedup_platform_tests.servers import new_name

URI = "postgresql://loader@127.0.0.1:5432/marts"
KAFKA = '{kind: kafka, follows: sessions, brokers: "127.0.0.1:9092", topic: copies}'
POSTGRES = f'{{kind: postgres, follows: sessions, uri: "{URI}", table: public.sessions}}'


def load(folder: Path, publish: str) -> Stream:
    path = make_stream(folder).origin
    path.write_text(f"{path.read_text()}publish:\n  {publish}\n")
    return load_stream(path)


def test_a_stream_without_sinks_has_the_default_columns(tmp_path: Path) -> None:
    publish = make_stream(tmp_path).publish
    assert publish.sinks == {}
    assert set(publish.downstream) == {"session_id", "entity_id", "started_at", "ended_at", "event_id", "event_time"}


def test_sinks_are_read(tmp_path: Path) -> None:
    mine = "{kind: custom, follows: deduplicated_events, changes: downstream, factory: 'a.b:c', options: {x: y}}"
    sinks = load(tmp_path, f"sinks: {{marts: {POSTGRES}, mine: {mine}}}").publish.sinks
    assert sinks == {
        "marts": PostgresSink(kind="postgres", follows="sessions", uri=URI, table="public.sessions"),
        "mine": CustomSink(
            kind="custom",
            follows="deduplicated_events",
            changes="downstream",
            factory="a.b:c",
            options={"x": "y"},
        ),
    }


@pytest.mark.parametrize(
    ("said", "instead", "reason"),
    [
        ("postgres,", "redis,", "publish.sinks.marts.kind: must be 'postgres', 'kafka', 'files' or 'custom' (got 're"),
        ("follows: sessions", "follows: raw_events", "publish.sinks.marts.follows: must be 'sessions' or 'dedupl"),
        ("marts:", "sessions:", "publish.sinks.sessions: is an asset of every stream; choose a name other than"),
        ("marts:", "session_aliases:", "publish.sinks.session_aliases: is an asset of every stream; choose a name"),
        ("marts:", "Marts:", "publish.sinks.Marts: is no name; write at most 50 lower-case letters"),
        ("public.sessions", "sessions", "publish.sinks.marts.table: is no table; write schema.table"),
        ("public.sessions", "a.dedup_platform_sinks", "publish.sinks.marts.table: is a table of the platform's own"),
        ("public.sessions", "a.b.c", "publish.sinks.marts.table: is no table; write schema.table"),
        ("public.sessions", f"a.{'b' * 51}", "publish.sinks.marts.table: is no table; write schema.table"),
        (URI, "mysql://host/db", "publish.sinks.marts.uri: is no address; write one like postgresql://user@host:5432/"),
        (URI, "postgresql://host", "publish.sinks.marts.uri: is no address"),
        (URI, f"{URI}?password=x", "publish.sinks.marts.uri: is no address"),
        (URI, "postgresql://host:port/db", "publish.sinks.marts.uri: is no address"),
    ],
)
def test_what_cannot_be_a_sink_is_refused(tmp_path: Path, said: str, instead: str, reason: str) -> None:
    told = f"sinks: {{marts: {POSTGRES}}}"
    assert said in told
    with pytest.raises(StreamFileError) as raised:
        load(tmp_path, told.replace(said, instead))
    assert reason in str(raised.value)


@pytest.mark.parametrize("registry", ['"http://registry:8081/"', '{url: "http://registry:8081"}'])
def test_messages_may_have_a_schema_and_a_registry(tmp_path: Path, registry: str) -> None:
    said = KAFKA.replace("}", f", format: avro, registry: {registry}}}")
    sink = load(tmp_path, f"sinks: {{topic: {said}}}").publish.sinks["topic"]
    assert isinstance(sink, KafkaSink)
    assert (sink.format, sink.registry and sink.registry.url) == ("avro", "http://registry:8081")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("format: csv", "publish.sinks.topic.format: must be 'json', 'avro' or 'protobuf'"),
        ('registry: "http://host"', "publish.sinks.topic: registry is for the formats avro and protobuf;"),
        ('format: avro, registry: "host"', "publish.sinks.topic.registry: is no address; write one"),
        ('format: avro, registry: "http://a:secret@b"', "publish.sinks.topic.registry: must hold no password; set"),
    ],
)
def test_what_no_message_can_be_is_refused(tmp_path: Path, said: str, reason: str) -> None:
    with pytest.raises(StreamFileError) as raised:
        load(tmp_path, f"sinks: {{topic: {KAFKA.replace('}', f', {said}}}')}}}")
    assert reason in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("password", ["secret", "se/cr@t"])
def test_a_password_is_refused_and_not_repeated(tmp_path: Path, password: str) -> None:
    with pytest.raises(StreamFileError, match=r"must hold no password|is no address") as raised:
        load(tmp_path, f"sinks: {{marts: {POSTGRES}}}".replace("loader@", f"loader:{password}@"))
    assert password not in str(raised.value)


def test_two_sinks_to_one_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StreamFileError, match=r"publish\.sinks\.b: writes to the same place as a; each needs one"):
        load(tmp_path, f"sinks: {{a: {POSTGRES}, b: {POSTGRES}}}")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (POSTGRES, POSTGRES.replace("public.sessions", "public.sessions_retired")),
        (POSTGRES, POSTGRES.replace("public.sessions", "public.sessions_aliases")),
        (KAFKA, KAFKA.replace("copies", "copies.positions")),
    ],
)
def test_what_a_sink_keeps_beside_its_copy_is_no_place_for_another(tmp_path: Path, one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        with pytest.raises(StreamFileError, match=r"publish\.sinks\.b: writes to the same place as a; each needs one"):
            load(tmp_path / new_name(), f"sinks: {{a: {first}, b: {second}}}")


@pytest.mark.parametrize("topic", ["copies", "copies.positions"])
def test_a_sink_cannot_write_what_the_stream_reads(tmp_path: Path, topic: str) -> None:
    path = make_stream(tmp_path).origin
    source = f'source: {{kind: kafka, brokers: "127.0.0.1:9092", topic: {topic}, format: json}}\nfields:'
    text = re.sub(r"source:.*?\nfields:", source, path.read_text(), flags=re.DOTALL)
    path.write_text(f"{text}publish: {{sinks: {{a: {KAFKA}}}}}\n")
    with pytest.raises(StreamFileError, match=r"publish\.sinks\.a: writes to the topic that the stream reads; name an"):
        load_stream(path)
    path.write_text(path.read_text().replace(f"topic: {topic}, format", "topic: other, format"))
    assert load_stream(path).publish.sinks.keys() == {"a"}


def test_columns_that_matter_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(StreamFileError, match=r"publish\.downstream\[1\]: 'colour' is no column of sessions or events"):
        load(tmp_path, "downstream: [session_id, colour]")


@pytest.mark.parametrize("name", ["xmin", "ctid", "n" * 64])
def test_columns_that_postgres_cannot_have_are_refused(tmp_path: Path, name: str) -> None:
    path = make_stream(tmp_path).origin
    text = path.read_text().replace("attributes:\n", f"attributes:\n    {name}: other\n")
    sink = POSTGRES.replace("follows: sessions", "follows: deduplicated_events")
    path.write_text(f"{text}publish: {{sinks: {{a: {sink}}}}}\n")
    with pytest.raises(StreamFileError, match=f"publish.sinks.a: Postgres can have no column '{name}'"):
        load_stream(path)


def test_a_sink_cannot_follow_sessions_that_the_stream_has_not(tmp_path: Path) -> None:
    path = make_stream(tmp_path).origin
    events = path.read_text().split("sessions:\n")[0]
    sink = "".join(f"      {line}\n" for line in POSTGRES.strip("{}").split(", "))
    path.write_text(f"{events}publish:\n  sinks:\n    marts:\n{sink}")
    line = path.read_text().splitlines().index("      follows: sessions") + 1
    reason = f"{path}:{line}: publish.sinks.marts.follows: the stream has no sessions; allowed: deduplicated_events, or"
    with pytest.raises(StreamFileError, match=re.escape(reason)):
        load_stream(path)
    path.write_text(path.read_text().replace("follows: sessions", "follows: deduplicated_events"))
    assert load_stream(path).sessions is None


def test_points_are_kept_for_a_week(tmp_path: Path) -> None:
    assert make_stream(tmp_path).publish.points == Points(keep=timedelta(days=7), at_most=100)


def test_points_are_read(tmp_path: Path) -> None:
    assert load(tmp_path, "points: {keep: 12h, at_most: 20}").publish.points == Points(
        keep=timedelta(hours=12), at_most=20
    )


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("{keep: 7}", "publish.points.keep: "),
        ("{at_most: 1}", "publish.points.at_most: "),
        ("{at_most: 1001}", "publish.points.at_most: "),
        ("{every: 1h}", "publish.points.every: "),
    ],
)
def test_points_that_are_wrong_are_refused(said: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(StreamFileError) as caught:
        load(tmp_path, f"points: {said}")
    assert reason in str(caught.value)

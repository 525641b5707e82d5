"""Metrics, as Prometheus gets and reads them."""

import re
from http.client import HTTPConnection
from pathlib import Path

from dedup_platform.platform.metrics import CONTENT_TYPE, METRICS, Sample, exposition
from dedup_platform.platform.metrics_server import following, metrics_server
from dedup_platform.settings import Settings
from dedup_platform.testing import lay_out, light_platform, make_stream, record, utc, write_batch

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
VALUE = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|Inf)|NaN"
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
Key = tuple[str, frozenset[tuple[str, str]]]


def parsed(text: str) -> dict[Key, float]:
    """Metric and labels -> value, by the grammar of the text format; AssertionError for what it does not allow.

    All lines of a metric must be together, after its HELP and TYPE, and no metric and labels may stand twice.
    """
    assert text.endswith("\n")
    found: dict[Key, float] = {}
    of, seen = "", set[str]()
    for line in text.splitlines():
        if comment := re.fullmatch(rf"# (HELP|TYPE) ({NAME}) (.+)", line):
            kind, name, rest = comment.groups()
            if kind == "HELP":
                assert name not in seen, f"{name} stands twice"
                seen.add(name)
                of = name
            assert name == of
            assert kind == "HELP" or rest in ("gauge", "counter")
            assert kind == "HELP" or (rest == "counter") == name.endswith("_total")
        else:
            sample = re.fullmatch(rf"({NAME})\{{((?:{LABEL},)*{LABEL})\}} ({VALUE})", line)
            assert sample, f"no sample: {line}"
            assert sample[1] == of
            labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[2])
            key = of, frozenset((name, re.sub(r"\\.", lambda each: ESCAPES[each[0]], value)) for name, value in labels)
            assert key not in found, f"{key} stands twice"
            found[key] = float(sample[3])
    return found


def get(port: int, path: str) -> tuple[int, str | None, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()
    finally:
        connection.close()


def test_what_is_served_is_the_status_in_the_text_format(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, "clicks")
    events = [record("a", str(number), utc(f"2024-03-01T10:0{number}")) for number in range(3)]
    write_batch(stream, lay_out(events, "first.json"))
    home = tmp_path / "home"
    platform = light_platform(home, stream, lambda: utc("2030-01-01T00:00"))
    platform.ingest("clicks")
    broken = make_stream(tmp_path, "other")
    broken.origin.write_text(broken.origin.read_text().replace("buckets: 1", "buckets: 3"))
    with metrics_server(following(Settings(home=home), stream.origin.parent), "127.0.0.1", 0) as port:
        status, kind, text = get(port, "/metrics")
        assert get(port, "/metrics")[2] == text, "asked again at once, it is the same"
        assert get(port, "/")[0] == 404
    assert (status, kind) == (200, CONTENT_TYPE)
    found = parsed(text)

    def value(metric: str, **labels: str) -> float:
        return found[f"dedup_platform_{metric}", frozenset({"stream": "clicks", **labels}.items())]

    assert (value("status_known"), value("healthy"), value("records_read_total")) == (1, 1, 3)
    assert value("table_rows", table="raw_events") == 3
    assert value("stale_cells", table="deduplicated_events") == 1
    assert value("watermark_timestamp_seconds") == utc("2024-03-01T10:02").timestamp()
    assert value("check_passed", check="source_reachable") == 1
    assert {dict(labels)["stream"] for _, labels in found} == {"clicks"}


def test_a_stream_or_a_file_that_fails_is_told_as_such(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, "clicks")
    home = tmp_path / "home"
    light_platform(home, stream, lambda: utc("2030-01-01T00:00"))
    (home / "catalog.db").write_text("no database")
    said = stream.origin.read_text()
    stream.origin.write_text("no stream file")
    with metrics_server(following(Settings(home=home), stream.origin), "127.0.0.1", 0) as port:
        assert get(port, "/metrics")[0] == 503
        stream.origin.write_text(said)
        found = parsed(get(port, "/metrics")[2])
    assert found == {("dedup_platform_status_known", frozenset({("stream", "clicks")})): 0}


def test_whatever_a_label_holds_is_read_as_it_was() -> None:
    strange = 'a"b\\c\nd}é'
    text = exposition([Sample(name, {"stream": "s", "table": strange}, 1.5e300) for name in METRICS])
    assert set(parsed(text).values()) == {1.5e300}
    assert {dict(labels)["table"] for _, labels in parsed(text)} == {strange}
    assert len(parsed(text)) == len(METRICS)

"""The command line on small real data: what it prints, and what its exit codes mean."""

import csv
import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from signal import SIGINT, default_int_handler, pthread_kill, signal
from threading import Event, Thread, current_thread, main_thread

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from dedup_platform import cli, errors, tables
from dedup_platform.cli import console, process
from dedup_platform.planning.claims import Partitions
from dedup_platform.planning.moments import utc_now
from dedup_platform.platform import Platform
from dedup_platform.platform.claims import Turn
from dedup_platform.platform.source import Source
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream, load_stream
from dedup_platform.tables import SESSIONS
from dedup_platform.testing import lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform_tests.sinks.sqlite_table import copies


class Line:
    """The command line with the environment of this test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What it printed on standard output, or on standard error if `code` says that it must fail."""
        self._capfd.readouterr()
        self._monkeypatch.setattr(sys, "argv", ["dedup-platform", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = self._capfd.readouterr()
        assert ended.value.code == code, f"{out}\n{err}"
        return out if code in (0, cli.NOT_EQUAL) else err


@pytest.fixture
def line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], settings: Settings, tmp_path: Path
) -> Line:
    for name in ("DAGSTER_HOME", "DEDUP_PLATFORM_STREAMS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(settings.home))
    monkeypatch.setenv("DEDUP_PLATFORM_SPARK_MASTER", "local[2]")
    monkeypatch.setattr(cli.out, "width", 200)
    monkeypatch.chdir(tmp_path)
    return Line(monkeypatch, capfd)


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Stream:
    made = make_stream(tmp_path, request.node.name[:60], start="2024-03-01")
    monkeypatch.setenv("DEDUP_PLATFORM_STREAMS", str(made.origin))
    return made


def deliver(stream: Stream, name: str, *times: str) -> None:
    records = [record("a", time, utc(time), page="/a,b", amount="1.50", quantity=1) for time in times]
    write_batch(stream, lay_out(records, name))


def test_a_days_work(line: Line, stream: Stream, spark: SparkSession) -> None:
    deliver(stream, "first.json", "2024-03-01T23:50", "2024-03-02T00:10", "2024-03-03T12:00")
    assert "1 files wait" in line("status")

    [told] = json.loads(line("run", "--json"))
    assert told["tables"]["sessions"]["rows"] == 2
    assert told["partitions"] == {"2024-03-01": "settled", "2024-03-02": "settled", "2024-03-03": "open"}
    assert (told["point"]["name"], told["watermark"]) == ("v1", "2024-03-03T12:00:00+00:00")
    assert "point v1 of " in line("status")
    assert "1 open, 0 closed, 2 settled, unsettled from 2024-03-03 on; watermark 2024-03-03 12:00:00" in line("status")
    assert "Nothing is stale" in line("plan")
    assert json.loads(line("verify", stream.name, "--json")) == {stream.name: []}

    maintained = json.loads(line("maintain", "--stream", stream.name, "--json"))[stream.name]
    assert [each["table"] for each in maintained] == [
        *reversed(tables.ALL),
        *tables.FOLLOWER_OF.values(),
        tables.AUDIT,
    ]
    assert all(each["before"]["files"] == each["after"]["files"] for each in maintained)
    printed = line("maintain")
    assert stream.name in printed
    assert "3 → 3" in printed

    line("export", stream.name, "sessions", "--to", "sessions.csv")
    rows = list(csv.DictReader(StringIO(Path("sessions.csv").read_text())))
    assert sorted(row["event_count"] for row in rows) == ["1", "2"]
    assert list(csv.DictReader(StringIO(line("export", stream.name, "sessions", "--to", "-")))) == rows
    line("export", stream.name, "raw_events", "--to", "raw.parquet")
    assert pyarrow.parquet.read_table("raw.parquet").num_rows == 3
    fragments = line("export", stream.name, "session_fragments", "--to", "-")
    assert "first_arrived.source" in fragments.splitlines()[0]

    changed = stream.files.root / "first.json"
    changed.write_text(changed.read_text().replace("/a,b", "/changed"))
    os.utime(changed, (1.6e9, 1.6e9))
    assert "changed after it was read" in line("status")
    assert "1 files accepted" in line("files", "accept", stream.name, "first.json")
    assert json.loads(line("run", "--json"))[0]["tables"]["raw_events"]["rows"] == 6

    stream.origin.write_text(stream.origin.read_text().replace("buckets: 1", "buckets: 2"))
    assert f"`dedup-platform buckets {stream.name}` changes them" in line("plan", code=4)
    assert "have 2 buckets." in line("buckets", stream.name)
    assert "have 2 buckets already." in line("buckets", stream.name)

    name = f"lake.{stream.name}.sessions"
    spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE event_count = 1")
    printed = line("verify", stream.name, code=cli.NOT_EQUAL)
    assert f"{stream.name}: differs" in printed
    assert "sessions: should not be there" in printed


FORMULAS = ("=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1")


def test_texts_that_a_spreadsheet_would_run_are_made_safe_if_asked(line: Line, stream: Stream) -> None:
    pages = [*FORMULAS, "/a=b", "a\n=1", "'=1", "", None]
    at = utc("2024-03-01T10:00")
    records = [record("-u", f"e{number}", at, page=page, amount="-1.50") for number, page in enumerate(pages)]
    write_batch(stream, lay_out(records, "first.json"))
    home = Path(os.environ["DEDUP_PLATFORM_HOME"])
    light_platform(home, stream, lambda: utc("2030-01-01T00:00")).ingest(stream.name)
    exporting = ("export", stream.name, "raw_events", "--to")
    assert "is no csv" in line(*exporting, "raw.parquet", "--safe-csv", code=2)
    line(*exporting, "raw.csv")
    line(*exporting, "safe.csv", "--safe-csv")
    given, safe = (list(csv.DictReader(StringIO(Path(name).read_bytes().decode()))) for name in ("raw.csv", "safe.csv"))
    assert {row["entity_id"] for row in safe} == {"'-u"}
    assert {row["amount"] for row in safe} == {"-1.50"}, "a number is none"
    expected = [f"'{row['page']}" if row["page"] in FORMULAS else row["page"] for row in given]
    assert [row["page"] for row in safe] == expected
    assert set(FORMULAS) < {row["page"] for row in given}
    assert [row["payload"] for row in safe] == [row["payload"] for row in given]


EVIL = "\x1b]52;c;aGk=\x07\x1b[31mred\u202egnp\x9b2J\r\nforged: all is well"
"""Sets the clipboard and a colour, turns the direction of writing, clears the screen, and begins a line."""


def test_nothing_from_outside_moves_a_terminal_or_forges_a_line(
    line: Line, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = stream.files.root
    root.mkdir(exist_ok=True)
    for name, content in {f"_w{EVIL}.json": "", f"x{EVIL}.json": f'{EVIL}\n"{EVIL}'}.items():
        (root / name).write_text(content)
        os.utime(root / name, (1.6e9, 1.6e9))
    printed = [line("status")]
    light_platform(Path(os.environ["DEDUP_PLATFORM_HOME"]), stream, lambda: utc("2030-01-01T00:00")).ingest(stream.name)
    listing = ("rejected", "list", stream.name)
    # As a terminal is, which is narrower, and where colours are shown.
    monkeypatch.setattr(cli.out, "_force_terminal", True)
    printed += [line(*listing), line(*listing, "--limit", "3"), line(*listing, "--limit", "3", "--json")]
    printed += [line("rejected", "show", stream.name, f"x{EVIL}.json", "0"), line("status")]
    printed += [line("check", "--sample", str(root / f"x{EVIL}.json"), "--stream", stream.name)]
    printed += [line("rejected", "show", stream.name, f"no{EVIL}.json", "0", code=2)]
    assert all("forged" in each for each in printed[:4])
    for each in printed:
        ours = re.sub(r"\x1b\[[0-9;]*m", "", each.replace("\x1b[31mred", "coloured"))
        assert not set(ours) & set("\x1b\x07\x9b\u202e\r")
        assert "coloured" not in ours
        assert [text for text in ours.splitlines() if text.lstrip().startswith("forged")] == [], ours


def test_rejected_records_are_listed_shown_dropped_and_replayed(
    line: Line, stream: Stream, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:

    settings, right = Settings(home=Path(os.environ["DEDUP_PLATFORM_HOME"])), stream.origin.read_text()
    assert "No record is rejected" in line("rejected", "list", stream.name)
    stream.origin.write_text(right.replace("event_time: happened", "event_time: {field: happened, format: '%d/%m/%Y'}"))
    deliver(stream, "first.json", "2024-03-01T10:00", "2024-03-02T10:00")
    broken = stream.files.root / "[b]roken.json"
    broken.write_bytes("né".encode() + b"\n\xff[bold]\n")
    os.utime(broken, (1.6e9, 1.6e9))
    wrong = load_stream(stream.origin)
    Platform(settings, {wrong.name: wrong}, lambda: spark).ingest(wrong.name)

    listed = json.loads(line("rejected", "list", stream.name, "--json"))
    assert listed["records"] == []
    counts = {each["reason"]: each["records"] for each in listed["reasons"]}
    assert counts == {"malformed_record": 2, "unreadable_event_time": 2}
    assert "[b]roken.json" in line("rejected", "list", stream.name)
    some = ("rejected", "list", stream.name, "--reason", "malformed*", "--until", "2024-01-01", "--limit", "1")
    [record] = json.loads(line(*some, "--json"))["records"]
    assert (record["source"], record["source_offset"], record["payload_begins"]) == ("[b]roken.json", 0, "né")
    assert "né" in line(*some)

    shown = ("rejected", "show", stream.name, "[b]roken.json")
    assert "payload: né" in line(*shown, "0")
    assert json.loads(line(*shown, "1", "--json"))["payload_encoding"] == "hex"
    assert "payload: ff5b626f6c645d" in line(*shown, "1")
    assert "no rejected record 2" in line(*shown, "2", code=2)

    dropping = ("rejected", "drop", stream.name, "--source", "*roken*")
    monkeypatch.setattr(sys, "stdin", StringIO("n\n"))
    assert "Drop 2 rejected records" in line(*dropping, code=cli.REFUSED)
    monkeypatch.setattr(sys, "stdin", StringIO(""))
    assert "--yes" in line(*dropping, code=cli.REFUSED)
    assert "2 changed" in line(*dropping, "--yes")
    assert "Nothing changed" in line(*dropping)
    assert "payload: none" in line(*shown, "0")

    assert "Nothing changed" in line("rejected", "replay", stream.name)
    stream.origin.write_text(right)
    replayed = line("rejected", "replay", stream.name, "--since", "2024-03-01", "--until", "2024-03-02")
    assert "1 became events" in replayed
    assert "in 2024-03-01;" in replayed
    told = json.loads(line("rejected", "replay", stream.name, "--json"))
    assert (told["accepted"], told["partitions"]) == (1, ["2024-03-02"])
    assert json.loads(line("rejected", "replay", stream.name, "--json"))["snapshot_id"] is None
    line("export", stream.name, "rejected_events", "--to", "rejected.csv")
    exported = list(csv.DictReader(StringIO(Path("rejected.csv").read_text())))
    assert [row["rejection_reason"] for row in exported] == 2 * ["dropped:malformed_record"]

    stream.origin.write_text(
        right.replace("event_time: happened", "event_time: {field: happened, timezone: Europe/Paris}")
    )
    redecoding = ("redecode", stream.name, "--partitions")
    assert "Nothing changed" in line(*redecoding, "2024-03-03..2024-03-05")
    for keys in ("soon", "2024-03-02..2024-03-01", "2024-03-01..x"):
        assert keys in line(*redecoding, keys, code=2)


def test_plan_tells_what_is_stale_and_runs_nothing(line: Line, stream: Stream, spark: SparkSession) -> None:

    settings = Settings(home=Path(os.environ["DEDUP_PLATFORM_HOME"]))
    deliver(stream, "first.json", "2024-03-01T10:00", "2024-03-02T10:00")
    Platform(settings, {stream.name: stream}, lambda: spark).ingest(stream.name)
    for _ in range(2):
        printed = line("plan")
        assert "deduplicated_events" in printed
        assert "2024-03-01 … 2024-03-02" in printed
    [first, *_] = json.loads(line("plan", "--json"))
    assert [cell["partition"] for cell in first["stale"]] == ["2024-03-01", "2024-03-02"]


def test_status_shows_who_works_on_what(line: Line, stream: Stream) -> None:
    settings = Settings(home=Path(os.environ["DEDUP_PLATFORM_HOME"]))
    platform = light_platform(settings.home, stream, utc_now)
    days = Partitions(frozenset(map(stream.partitions.ordinal_of, ("2024-03-01", "2024-03-02"))))
    told: list[str] = []

    def step(turn: Turn) -> None:
        with turn.reading():
            told.extend([line("status"), line("status", "--json")])

    platform.claims.work(stream, SESSIONS, days, step)
    assert f"sessions: 2024-03-01 … 2024-03-02 in progress, process {os.getpid()} on " in told[0]
    [claim] = json.loads(told[1])[0]["claims"]
    assert {name: claim[name] for name in ("target", "state", "partitions", "wanted_again", "ended")} == {
        "target": "sessions",
        "state": "in progress",
        "partitions": "2024-03-01 … 2024-03-02",
        "wanted_again": "",
        "ended": None,
    }
    assert json.loads(line("status", "--json"))[0]["claims"] == []


def test_check_shows_the_streams(line: Line, stream: Stream) -> None:
    deliver(stream, "first.json", "2024-03-01T23:50")
    assert stream.name in line("check")
    assert json.loads(line("check", "--json"))[0]["name"] == stream.name


def test_a_wrong_stream_file_is_one_message_and_code_2(line: Line, stream: Stream) -> None:
    stream.origin.write_text(stream.origin.read_text().replace("timeout: 30m", "timeout: soon"))
    printed = line("check", code=2)
    assert "sessions.timeout" in printed
    assert "Traceback" not in printed
    assert "Traceback" in line("--debug", "check", code=2)


def test_what_is_missing_or_unknown_is_said_with_code_2(line: Line, stream: Stream) -> None:
    assert "there is no stream named 'nobody'" in line("run", "--stream", "nobody", code=2)
    assert "'nothing' is no table" in line("export", stream.name, "nothing", "--to", "-", code=2)
    assert "must end in .csv or .parquet" in line("export", stream.name, "sessions", "--to", "a.xls", code=2)
    os.environ.pop("DEDUP_PLATFORM_STREAMS")
    assert "DEDUP_PLATFORM_STREAMS" in line("status", code=2)


def test_a_number_of_buckets_must_be_possible_and_that_of_the_stream_file(line: Line, stream: Stream) -> None:
    assert "must be a power of two" in line("buckets", stream.name, "3", code=2)
    assert "says buckets: 1" in line("buckets", stream.name, "8", code=2)
    stream.origin.write_text(stream.origin.read_text().replace("buckets: 1", "buckets: 0"))
    assert "must be a power of two" in line("buckets", stream.name, code=2)


def test_an_export_before_the_first_run_fails_and_leaves_no_file(line: Line, stream: Stream, tmp_path: Path) -> None:
    line("export", stream.name, "sessions", "--to", "out.csv", code=cli.FAILED)
    assert not list(tmp_path.glob("*out.csv*"))
    for table in ("event_changes", "session_aliases", "audit"):
        assert "nothing was taken in yet" in line("export", stream.name, table, "--to", "out.csv", code=cli.FAILED)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.StreamFileError("x"), 2),
        (errors.ConflictError("x"), 3),
        (errors.SourceChangedError("x"), 3),
        (errors.IncompatibleChangeError("x"), 4),
        (errors.ConservationError("x"), 4),
        (errors.SourceError("x", "y"), 5),
        (OSError("x"), 5),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    assert cli.exit_code(error) == code


def test_the_console_script_documents_its_exit_codes() -> None:
    script = Path(sys.executable).with_name("dedup-platform")
    shown = subprocess.run([str(script), "--help"], capture_output=True, text=True, check=True).stdout
    assert all(f"{code}  " in shown for code in range(6))
    for command in (
        "check",
        "run",
        "plan",
        "publish",
        "status",
        "export",
        "verify",
        "maintain",
        "buckets",
        "redecode",
        "rejected",
        "demo",
        "files",
        "offsets",
        "batches",
        "connect-server",
        "sql",
    ):
        assert command in shown


@pytest.mark.parametrize(("width", "lines"), [({}, 1), ({"COLUMNS": "80"}, 3)], ids=["piped", "as wide as asked"])
def test_what_is_piped_is_not_broken_into_lines(width: dict[str, str], lines: int) -> None:
    program = "from dedup_platform.cli import out; out.print(' '.join(['word'] * 40))"
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | width
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert len(done.stdout.splitlines()) == lines


def test_one_stream_that_fails_is_shown_beside_the_others(line: Line, stream: Stream, tmp_path: Path) -> None:
    broken = make_stream(tmp_path, f"{stream.name}_2"[-60:], start="2024-03-01")
    broken.files.root.rmdir()
    os.environ["DEDUP_PLATFORM_STREAMS"] = str(tmp_path)
    deliver(stream, "first.json", "2024-03-01T23:50")
    assert "the source's folder cannot be read" in line("run", code=cli.FAILED)

    printed = line("status")
    assert "the source cannot be asked" in printed
    assert "the ingest is open: 3 tries" in printed
    told = {each["stream"]: each for each in json.loads(line("status", "--json"))}
    assert told[stream.name]["health"]["state"] == "normal"
    assert told[stream.name]["tables"]["sessions"]["rows"] == 1
    assert (told[broken.name]["health"]["state"], told[broken.name]["waiting"]) == ("open", None)
    assert told[broken.name]["health"]["next_try"] > told[broken.name]["health"]["since"]

    broken.files.root.mkdir()
    line("run", "--stream", broken.name)
    assert {each["health"]["state"] for each in json.loads(line("status", "--json"))} == {"normal"}


def test_a_broken_stream_file_costs_its_own_stream_only(line: Line, stream: Stream) -> None:
    os.environ["DEDUP_PLATFORM_STREAMS"] = str(stream.origin.parent)
    broken = stream.origin.with_name("broken.yaml")
    broken.symlink_to("nothing")
    deliver(stream, "first.json", "2024-03-01T23:50")
    told = f"{broken}: No such file or directory"
    assert told in line("check", code=2)
    assert told in line("run", code=2)
    assert told not in line("run", "--stream", stream.name)
    assert told in line("status", code=2)
    assert told in line("run", "--stream", "broken", code=2)
    broken.unlink()
    [status] = json.loads(line("status", "--json"))
    assert status["tables"]["sessions"]["rows"] == 1, "the first run did it"


def test_a_held_batch_is_accepted(line: Line, stream: Stream) -> None:
    stream.origin.write_text(f"{stream.origin.read_text()}reject: {{max_ratio: 0.5, min_records: 1}}\n")
    assert "No batch is held" in line("batches", "accept", stream.name)
    (stream.files.root / "first.json").write_text("broken\n")
    os.utime(stream.files.root / "first.json", (1.6e9, 1.6e9))
    printed = line("run", code=4)
    assert f"`dedup-platform batches accept {stream.name}`" in printed
    assert "it waits for a person" in line("status")
    assert "Accepted" in line("batches", "accept", stream.name)
    assert json.loads(line("run", "--json"))[0]["rejected"] == 1


def test_a_file_is_left_out(line: Line, stream: Stream) -> None:
    deliver(stream, "good.json", "2024-03-01T10:00")
    deliver(stream, "bad.json", "2024-03-01T11:00")
    assert "1 files skipped" in line("files", "skip", stream.name, str(stream.files.root / "bad.json"))
    assert "does not wait to be read" in line("files", "skip", stream.name, "bad.json", code=2)
    assert json.loads(line("run", "--json"))[0]["tables"]["raw_events"]["rows"] == 1
    assert "bad.json: skipped" in line("status")
    assert json.loads(line("status", "--json"))[0]["skipped"] == ["bad.json"]


def test_offsets_that_are_none_are_refused(line: Line, stream: Stream) -> None:
    for offsets in ("", "x", "-1", "1..", "..1", "3..2", "1..2..3", "1-2", "\u0661\u00b2"):
        told = line("offsets", "skip", "--", stream.name, "0", offsets, code=2)
        assert "write one offset" in told, offsets


def test_a_run_that_is_interrupted_is_known_to_have_failed(
    line: Line, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(stream, "first.json", "2024-03-01T10:00")
    main, is_over, at_work = main_thread().ident, Event(), list[Thread]()
    assert main

    def interrupted(*_: object) -> None:
        at_work.append(current_thread())
        pthread_kill(main, SIGINT)
        is_over.wait(60)
        raise SystemExit

    # Whoever started this process in the background may have let it ignore the signal.
    before = signal(SIGINT, default_int_handler)
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(process, "SECONDS_TO_END", 60)
    monkeypatch.setattr(Source, "_batches", interrupted)
    # What it says goes by Dagster, which has taken the output away that is captured here.
    line("run", code=cli.INTERRUPTED)
    console.out.quiet = console.err.quiet = False
    [told] = json.loads(line("status", "--json"))
    assert (told["health"]["state"], told["health"]["attempts"]) == ("retrying", 1)
    assert "ended before it could say why" in told["health"]["reason"]
    is_over.set()
    at_work[0].join()
    signal(SIGINT, before)


def test_publish_brings_feeds_and_sinks_up_to_date(line: Line, stream: Stream, tmp_path: Path) -> None:
    factories = {"bad": "no.such:factory", "good": "dedup_platform_tests.sinks.sqlite_table:open_table"}
    sinks = {
        name: f"{{kind: custom, follows: sessions, factory: '{factory}', options: {{file: {tmp_path / name}.db}}}}"
        for name, factory in factories.items()
    }
    said = ", ".join(f"{name}: {sink}" for name, sink in sinks.items())
    stream.origin.write_text(f"{stream.origin.read_text()}publish: {{sinks: {{{said}}}}}\n")
    deliver(stream, "first.json", "2024-03-01T23:50", "2024-03-02T00:10", "2024-03-03T12:00")
    line("run", code=5)
    assert len(copies(f"{tmp_path / 'good'}.db")) == 2, "a sink that fails holds no other one back"
    deliver(stream, "second.json", "2024-03-05T12:00")
    told = json.loads(line("publish", "--sink", "good", "--json"))[stream.name]
    assert told["sinks"][0]["version"] == 1
    assert f"{stream.name}: good: version 1" in line("publish", "--sink", "good", "--retry")
    assert "there is no no.such:factory" in line("publish", code=5)
    unknown = " ".join(line("publish", "--sink", "other", code=2).replace("│", " ").split())
    assert "no stream that was chosen has a sink named other; sinks: bad, good" in unknown
    printed = line("status")
    assert "session_changes: version 1" in printed
    assert "sink bad is failing" in printed
    assert "records read" in printed
    [told] = json.loads(line("status", "--json"))
    assert {each["sink"]: (each["version"], each["health"]["state"]) for each in told["sinks"]} == {
        "bad": (None, "failing"),
        "good": (1, "normal"),
    }
    assert told["audit"]["records_read"] == 3
    line("export", stream.name, "session_changes", "--to", "-")
    place = ("--stream", stream.name, "--sink", "good")
    assert "good: version 1, 2 insert; 2 forced" in line("publish", *place, "--force", "--entity", "a")
    [again] = json.loads(line("publish", *place, "--force", "--partition", "2024-03-03", "--json"))[stream.name][
        "sinks"
    ]
    assert (again["forced"], again["sent"]) == (1, {"insert": 1})
    assert "say by --stream and --sink" in line("publish", "--force", code=2)
    assert "say which rows" in line("publish", "--session", "x", code=2)
    assert "write FIRST..LAST" in line("publish", *place, "--force", "--partition", "soon", code=2)


def test_a_run_tries_a_sink_that_failed_lately(line: Line, stream: Stream, tmp_path: Path) -> None:
    factory, store = "dedup_platform_tests.sinks.sqlite_table:open_table", tmp_path / "later" / "copy.db"
    said = f"{{copy: {{kind: custom, follows: sessions, factory: '{factory}', options: {{file: {store}}}}}}}"
    stream.origin.write_text(f"{stream.origin.read_text()}publish: {{sinks: {said}}}\n")
    deliver(stream, "first.json", "2024-03-01T23:50")
    assert "unable to open database file" in line("run", code=5)
    assert "sink copy is open" in line("status")
    store.parent.mkdir()
    line("run")
    assert len(copies(str(store))) == 1
    assert "sink copy is" not in line("status")


def test_feeds_are_exported_in_their_order(line: Line, stream: Stream) -> None:
    deliver(stream, "first.json", "2024-03-01T23:50", "2024-03-03T12:00")
    line("run")
    deliver(stream, "second.json", "2024-03-02T00:10")
    line("run")
    rows = list(csv.DictReader(StringIO(line("export", stream.name, "session_changes", "--to", "-"))))
    assert [(row["_commit_version"], row["_change_type"]) for row in rows] == [
        ("1", "insert"),
        ("1", "insert"),
        ("2", "update_preimage"),
        ("2", "update_postimage"),
    ]
    assert "event_count" in json.loads(rows[-1]["changed_columns"])
    assert rows[0]["changed_columns"] == ""
    line("export", stream.name, "event_changes", "--to", "changes.parquet")
    assert pyarrow.parquet.read_table("changes.parquet").num_rows == 3
    assert "copies" in line("export", stream.name, "audit", "--to", "-").splitlines()[0]


def test_the_schema_of_a_sinks_messages_is_printed(line: Line, stream: Stream) -> None:
    kafka = 'kind: kafka, follows: sessions, brokers: "127.0.0.1:1"'
    sinks = [f"{name}: {{{kafka}, topic: {name}, format: {name}}}" for name in ("json", "avro", "protobuf")]
    stream.origin.write_text(f"{stream.origin.read_text()}publish: {{sinks: {{{', '.join(sinks)}}}}}\n")
    schema = json.loads(line("sinks", "schema", stream.name, "--sink", "avro"))
    assert (schema["name"], schema["namespace"]) == ("Envelope", f"{stream.name}.sessions")
    proto = line("sinks", "schema", stream.name, "--sink", "protobuf")
    assert proto.startswith(f'syntax = "proto3";\npackage {stream.name}.sessions;\n')
    assert "sinks: json, avro, protobuf" in " ".join(
        line("sinks", "schema", stream.name, "--sink", "x", code=2).split()
    )
    assert "not of Avro or Protobuf" in line("sinks", "schema", stream.name, "--sink", "json", code=2)

"""The demo from end to end: generate, run, compare with the truth, drop a late file, let the sensors repair it."""

import os
import shlex
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from dedup_platform.cli.output import print_changes, print_scores
from dedup_platform.demo.clicks import generate
from dedup_platform.demo.files import stream_file
from dedup_platform.demo.found import found, rewritten, snapshots
from dedup_platform.demo.late import late_file
from dedup_platform.demo.truth import Found, Score, Truth, Visit, score, score_repair
from dedup_platform.errors import SettingsError
from dedup_platform.orchestration.progress import Listener, shown
from dedup_platform.planning.cells import Cell
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings, load_settings
from dedup_platform.spark.connect_token import with_token
from dedup_platform.spark.session import spark_session
from dedup_platform.stream import Stream, load_streams

FOLDER = "demo"
STREAM_FILE = "clicks.yaml"


@dataclass(frozen=True)
class Rehearsal:
    """The demo's own deployment, apart from the user's tables."""

    settings: Settings
    stream: Stream
    platform: Platform
    out: Console
    err: Console

    @property
    def streams(self) -> dict[str, Stream]:
        return {self.stream.name: self.stream}


def rehearse(settings: Settings, events: int, out: Console, err: Console) -> bool:
    """Run the demo with about `events` clicks in `<home>/demo`; whether everything that was found is the truth.

    An earlier demo there is replaced. Raises SettingsError if something else is there.
    """
    folder = _emptied(settings.home / FOLDER)
    with shown(err, "making up clicks", None):
        truth = generate(folder, events=events)
        path = stream_file(folder, truth)
    out.print(f"{truth.records:,} records of a week's clicks, with their truth, lie in {folder}.")
    demo = _opened(folder, path, out, err)
    # The demo has a home of its own, and a server that is used may be the user's.
    with with_token(settings):
        right = _first_run(demo, truth)
        right &= _repair(demo, late_file(folder, truth))
    out.print("Look at it in Dagster's UI (http://127.0.0.1:3000) with this command:", style="bold")
    out.print(_command(demo.settings, path), soft_wrap=True, highlight=False, markup=False)
    return right


def _first_run(demo: Rehearsal, truth: Truth) -> bool:
    from dedup_platform.orchestration.embedded import run_stream, steps_of

    with shown(demo.err, demo.stream.name, steps_of(demo.stream)) as listener:
        run_stream(demo.settings, demo.stream, listener)
    scores = score(found(demo.platform, demo.stream), truth)
    print_scores(demo.out, "After the first run: found against truth", scores)
    return all(each.right for each in scores)


def _repair(demo: Rehearsal, truth: Truth) -> bool:
    before, base = found(demo.platform, demo.stream), snapshots(demo.platform, demo.stream)
    demo.out.print("Three late records arrive in one file; the sensors are asked, and what they ask for is run.")
    with shown(demo.err, "repairing", None) as listener:
        _follow_sensors(demo, listener)
    after = found(demo.platform, demo.stream)
    cells = rewritten(demo.platform, demo.stream, base)
    scores = [*score(after, truth), *_where(demo, cells, truth)]
    print_scores(demo.out, "After the late file: found against truth", scores)
    ids = score_repair(before, after, truth)
    print_scores(demo.out, "Session ids before and after", ids)
    _print_sessions(demo, before, after)
    return all(each.right for each in [*scores, *ids])


def _follow_sensors(demo: Rehearsal, listener: Listener) -> None:
    """As Dagster's daemon does: ask the sensors again and again, here until nothing is stale."""
    from dedup_platform.orchestration.rehearsal import follow_sensors

    said = set[str]()

    def say_once(text: str) -> None:
        if text not in said:
            listener.say(text)
        said.add(text)

    patient = Listener(say_once, listener.done)
    while follow_sensors(demo.settings, demo.streams, demo.stream.name, patient) or _is_stale(demo):
        time.sleep(1)


def _is_stale(demo: Rehearsal) -> bool:
    return any(plan.stale for plan in demo.platform.plan(demo.stream.name))


def _where(demo: Rehearsal, cells: Mapping[str, Collection[Cell]], truth: Truth) -> Iterator[Score]:
    """Which cells of how many were rewritten; none may lie in a partition that the late file does not concern."""
    assert truth.repair is not None
    totals = {table.table: table.cells for table in demo.platform.status(demo.stream.name).tables}
    for name, changed in cells.items():
        places = ", ".join(f"{demo.stream.partitions.key(cell.partition)}/{cell.bucket}" for cell in sorted(changed))
        demo.out.print(
            f"  {name}: {len(changed)} of {totals[name]} cells rewritten: {places or 'none'}", highlight=False
        )
        strangers = {demo.stream.partitions.key(cell.partition) for cell in changed} - truth.repair.partitions[name]
        yield Score(f"{name}: rewritten elsewhere", len(strangers), 0)


def _print_sessions(demo: Rehearsal, before: Found, after: Found) -> None:
    """Every session that is not what it was."""
    gone = {
        session_id: visit for visit, session_id in before.sessions.items() if after.sessions.get(visit) != session_id
    }
    new = {
        session_id: visit for visit, session_id in after.sessions.items() if before.sessions.get(visit) != session_id
    }
    ids = sorted(gone.keys() | new.keys())
    rows = [(session_id, _described(gone.get(session_id)), _described(new.get(session_id))) for session_id in ids]
    print_changes(demo.out, "Sessions that changed", rows)


def _described(visit: Visit | None) -> str:
    if visit is None:
        return "merged"
    return f"{visit.started_at:%d %b %H:%M} - {visit.ended_at:%H:%M}, {visit.events} events"


def _emptied(folder: Path) -> Path:
    if folder.exists() and any(folder.iterdir()) and not (folder / STREAM_FILE).exists():
        raise SettingsError(
            f"{folder} holds something that is no earlier demo; set DEDUP_PLATFORM_HOME to another folder"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _opened(folder: Path, path: Path, out: Console, err: Console) -> Rehearsal:
    places = {"warehouse": f"{folder}/warehouse", "catalog_uri": f"sqlite:///{folder}/catalog.db"}
    own = load_settings(home=folder, control_uri=f"sqlite:///{folder}/control.db", dagster_uri=None, **places)
    # The demo's tables are not the user's, and so its runs are not in the user's Dagster either.
    os.environ["DAGSTER_HOME"] = str(folder / "dagster")
    streams = load_streams(path)
    [stream] = streams.values()
    return Rehearsal(own, stream, Platform(own, streams, spark=lambda: spark_session(own)), out, err)


def _command(settings: Settings, path: Path) -> str:
    variables = {
        "DEDUP_PLATFORM_HOME": settings.home,
        "DEDUP_PLATFORM_STREAMS": path,
        "DAGSTER_HOME": settings.dagster_home,
    }
    words = [f"{name}={shlex.quote(str(value))}" for name, value in variables.items()]
    return " ".join([*words, shlex.quote(sys.executable), "-m", "dedup_platform.dev"])

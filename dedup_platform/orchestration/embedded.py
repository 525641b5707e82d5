"""Runs in this process, recorded where Dagster's UI looks: what the command line's `run` does."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from threading import Lock

import dagster as dg
from dagster._core.instance.ref import InstanceRef  # the only way to have Dagster's settings, but for one
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from dedup_platform import tables
from dedup_platform.errors import SettingsError
from dedup_platform.orchestration import compute_logs, runs
from dedup_platform.orchestration.build import build_definitions
from dedup_platform.orchestration.event_log import kept_open
from dedup_platform.orchestration.failures import as_raised
from dedup_platform.orchestration.intake import note_lost_ingests
from dedup_platform.orchestration.pools import busy_pools, looked_after, pool
from dedup_platform.orchestration.progress import Listener
from dedup_platform.platform import Platform
from dedup_platform.settings import ENV_PREFIX, PRIVATE_FOLDER, Settings
from dedup_platform.stream import Stream
from dedup_platform.uris import reaching

LISTENER = "listener"
_COMPOSING = Lock()
LISTED = {".dagster/repository": "__repository__@dedup_platform.definitions"}
"""The label of `workspace.yaml`'s code location: the UI lists a run that carries it under its job."""

DAGSTER_URI = f"{ENV_PREFIX}DAGSTER_URI"
COMPUTE_LOGS = f"{ENV_PREFIX}COMPUTE_LOGS"
# Dagster reads the variable itself: what may be a password is in no file.
_ON_POSTGRES = f"""
storage:
  postgres:
    postgres_url:
      env: {DAGSTER_URI}
"""

_NO_OUTPUT = {
    "compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
}


def steps_of(stream: Stream) -> int:
    """How many steps it is from the source to the last sink."""
    return 1 + len(tables.derived(stream)) + len(stream.publish.sinks)


def make_dagster_home(settings: Settings) -> None:
    """Create Dagster's home, with settings of Dagster's where there are none.

    Raises SettingsError if those that are there do not know of what the deployment's settings name: the database, or
    the place of what steps print.
    """
    home = settings.dagster_home
    home.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    configuration = home / "dagster.yaml"
    storage = _ON_POSTGRES if settings.dagster_uri else ""
    output = compute_logs.section(settings)
    if not configuration.exists():
        default = files(__package__).joinpath("dagster.yaml").read_text("utf-8")
        configuration.write_text(default + storage + output, encoding="utf-8")
        return
    found = configuration.read_text("utf-8")
    if storage and f"env: {DAGSTER_URI}" not in found:
        raise SettingsError(f"{DAGSTER_URI}: {configuration} was made without it. Add to that file:\n{storage}")
    if output and not compute_logs.is_in(found, settings):
        raise SettingsError(f"{COMPUTE_LOGS}: {configuration} was made without it. Have in that file:\n{output}")


@contextmanager
def open_instance(settings: Settings, keeps_output: bool = True) -> Iterator[dg.DagsterInstance]:
    """Dagster's instance in its home; its settings and databases are made where there are none.

    Without `keeps_output` it does not keep what steps print: it takes a process's output away meanwhile, so of several
    runs in one process none would get its own, or get it back. Raises UnreachableError if its Postgres is not there.
    """
    make_dagster_home(settings)
    if settings.dagster_uri:
        _try(settings.dagster_uri)
    told = InstanceRef.from_dir(str(settings.dagster_home), overrides=None if keeps_output else _NO_OUTPUT)
    # Another process may make Dagster's own tables between Dagster's look and its try: soon they are there.
    tries = Retrying(
        stop=stop_after_attempt(5), wait=wait_fixed(0.5), retry=retry_if_exception_type(DBAPIError), reraise=True
    )
    opened = tries(dg.DagsterInstance.from_ref, told)
    with opened as instance:
        if not keeps_output:
            # At every run Dagster would tell Python's logging anew what its settings say: while another thread logs,
            # both wait for each other for ever.
            vars(instance)["get_yaml_python_handlers"] = list
        with kept_open(instance):
            yield instance


def _try(uri: str) -> None:
    """Dagster itself would try again and again, and then not say why."""
    engine = create_engine(uri)
    with reaching(DAGSTER_URI), engine.connect():
        engine.dispose()


def run_stream(settings: Settings, stream: Stream, listener: Listener) -> None:
    """Ingest all that waits for one stream, recompute until nothing is stale, then bring its sinks up to date.

    What a step raises comes through as it is; what a sink raises, once the others are done.
    """
    with open_instance(settings) as instance:
        run_stream_in(instance, settings, stream, listener)


def run_stream_in(instance: dg.DagsterInstance, settings: Settings, stream: Stream, listener: Listener) -> None:
    """`run_stream` with an instance that is open: several threads may each run a stream, if it keeps no output.

    Fails runs whose process is dead first, so that nobody waits for them.
    """
    for run_id in runs.fail_dead_runs(instance):
        listener.say(f"run {run_id[:8]} was dead: it is marked as failed and its slots are free")
    _wait_for_pools(instance, stream, listener)
    ingest, *sinks = jobs_of(settings, stream, listener)
    _execute(ingest, instance, {runs.POLICY: runs.IGNORED})
    failures = []
    for sink in sinks:
        try:
            _execute(sink, instance, {})
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]


def jobs_of(settings: Settings, stream: Stream, listener: Listener) -> list[dg.JobDefinition]:
    """The job that ingests and recomputes, and one for each sink."""
    names = [runs.ingest_job_name(stream), *(runs.sink_job_name(stream, sink) for sink in stream.publish.sinks)]
    # Dagster notes what a job is composed of in one place for all threads.
    with _COMPOSING:
        loggers = {LISTENER: listening_logger(listener)}
        definitions = build_definitions(settings, {stream.name: stream}, loggers=loggers)
        return [definitions.resolve_job_def(name) for name in names]


def _execute(job: dg.JobDefinition, instance: dg.DagsterInstance, tags: Mapping[str, str]) -> None:
    # No daemon may be there to look after its pools.
    with looked_after(instance), as_raised():
        job.execute_in_process(
            instance=instance,
            tags={**runs.this_process(), **tags, **LISTED},
            run_config={"loggers": {LISTENER: {}}},
        )


def note_interrupted(platform: Platform) -> None:
    """Record that the runs of this process end here, and that those of them failed which had not ingested yet."""
    [[name, process]] = runs.this_process().items()
    with open_instance(platform.settings) as instance:
        for run in instance.get_runs(dg.RunsFilter(tags={name: process}, statuses=runs.IN_WORK)):
            instance.report_run_canceled(run, "The process of this run was interrupted.")
        for stream in platform.streams.values():
            note_lost_ingests(instance, platform, stream)


def _wait_for_pools(instance: dg.DagsterInstance, stream: Stream, listener: Listener) -> None:
    """Sleep while another run writes the stream's tables: inside a run, Dagster would wait with a busy processor."""
    pools = [pool(stream, table) for table in (tables.RAW_EVENTS, *tables.derived(stream))]
    said: list[str] = []
    while busy := busy_pools(instance, pools):
        if busy != said:
            listener.say(f"{stream.name}: waiting for another run, which writes {', '.join(busy)}")
        said = busy
        time.sleep(1)
        runs.fail_dead_runs(instance)


class _Handler(logging.Handler):
    """Passes on what steps log, and that they are done; Dagster's own chatter is left out."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(logging.DEBUG)
        self._listener = listener
        self._done = 0

    def emit(self, record: logging.LogRecord) -> None:
        told = getattr(record, "dagster_meta", {})
        event = told.get("dagster_event")
        if event is None:
            self._listener.say(str(told.get("orig_message")))
        elif event.is_step_success:
            self._done += 1
            self._listener.done(self._done)


def listening_logger(listener: Listener) -> dg.LoggerDefinition:
    """The logger of runs whose words somebody waits for."""
    logger = logging.Logger(LISTENER, logging.DEBUG)
    logger.addHandler(_Handler(listener))
    return dg.LoggerDefinition(lambda _: logger, description="Tells the command line what happens.")

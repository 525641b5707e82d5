"""One life: a world, the processes that work on its tables, and the judge who looks at every commit."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.errors import ConflictError, IncompatibleChangeError
from dedup_platform.lake.snapshots import bucket_count, head
from dedup_platform.planning.cells import Cell
from dedup_platform.planning.claims import TIME_TO_LIVE
from dedup_platform.platform import Platform
from dedup_platform.stream import Claims, Maintenance
from dedup_platform.testing.clock import HeldClock
from dedup_platform.testing.comparison import SessionIds, table_differences
from dedup_platform.testing.platforms import light_platform, temporary_platform
from dedup_platform_tests.lives.checks import Checks, misplaced
from dedup_platform_tests.lives.fates import Killed, before_commit, dying
from dedup_platform_tests.lives.figures import wrong_figures
from dedup_platform_tests.lives.followers import Followers, with_sinks
from dedup_platform_tests.lives.points import PointLaws
from dedup_platform_tests.lives.program import Op
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.lives.state import Reader, State
from dedup_platform_tests.lives.world import TopicWorld, World

TICKS = 12
"""So many looks of the sensors, without anything new, must end with nothing stale."""
FOLLOWED_AFTER = 0.4
"""How often the feeds follow an operation at once."""
WITHOUT_SESSIONS = 0.15
"""How often the stream file has no sessions to begin with."""
POINTS_AFTER = 0.5
"""How often whoever did something looks for a point at once."""
BY_THE_OTHER = 0.3
"""How often the process that works is another one than last time."""


class WrongError(AssertionError):
    """Something that must hold did not."""


class Life:
    """The tables of one stream in a folder, and what was done to them so far."""

    platform: Platform
    _beside: Platform
    judge: Platform

    def __init__(self, folder: Path, seed: int, brokers: str | None = None, spark: SparkSession | None = None) -> None:
        random = self.random = Random(seed)
        self.home = folder / "home"
        self._spark = spark
        self.world = TopicWorld.reading(folder, random, brokers) if brokers else World.of(folder, random)
        self._folder = folder
        claims = Claims(on_repeat="process" if seed % 2 else "drop")
        update = {"maintenance": Maintenance(min_snapshots=1), "claims": claims}
        stream = self.world.stream.model_copy(update=update)
        self.world.stream = with_sinks(stream, folder)
        self.clock = HeldClock(datetime.now(UTC) + timedelta(days=1))
        self.checks = Checks(self.world.timeouts)
        self._reader = Reader()
        self._followers = Followers(self._reader)
        self._points = PointLaws(self._reader)
        self._judged: object = None
        self._has_receipts = True
        self._renew()
        if buckets := random.choice((0, 1, 2, 4)):
            self.platform.lake.create(self.world.stream, buckets)
        if random.random() < WITHOUT_SESSIONS:
            self.op_sessions(self.platform, random)

    @property
    def name(self) -> str:
        return self.world.stream.name

    def another(self) -> Platform:
        """Another process, which remembers nothing; whatever it publishes is looked at."""
        stream, spark = self.world.stream, self._spark
        make = partial(temporary_platform, spark=spark) if spark else light_platform
        platform = make(self.home, stream, clock=self.clock)
        publish = platform.lake.publish

        def watched(staged: Any) -> None:
            publish(staged)
            self.check()

        platform.lake.publish = watched  # type: ignore[method-assign]
        tags = platform.points._tags
        platform.points._tags = lambda stream: self._points.watch(tags(stream))  # type: ignore[method-assign]
        return platform

    def do(self, op: Op) -> None:
        """Live through one operation, done by either of two processes that live on."""
        random = Random(op.seed)
        if random.random() < BY_THE_OTHER:
            self.platform, self._beside = self._beside, self.platform
        fates: dict[str, Callable[[Platform, Random], AbstractContextManager[None]]]
        fates = {"": lambda *_: nullcontext(), "killed": dying, "meanwhile": self._disturbed}
        with fates[op.fate](self.platform, random), suppress(ConflictError, Killed):
            self._attempt(op.name, self.platform, random)
            if Random(op.seed).random() < FOLLOWED_AFTER:
                self._attempt("publish", self.platform, random)
            if Random(~op.seed).random() < POINTS_AFTER:
                self.platform.points.make(self.name)
        if op.fate == "killed":
            self.platform = self.another()
            # What it was at is over when it gave no sign of life for so long: its process lives on as another one.
            self.clock.advance(TIME_TO_LIVE)
        self.check()
        self._check_followers()

    def _attempt(self, name: str, platform: Platform, random: Random) -> None:
        try:
            getattr(self, f"op_{name}")(platform, random)
        except IncompatibleChangeError:
            # A change of buckets died half-way: nobody may write until it is finished.
            state = self.state()
            if state is None or len(state.buckets) < 2:
                raise

    # What can happen

    def op_deliver(self, platform: Platform, random: Random) -> None:  # noqa: ARG002
        self.world.deliver(random)

    def op_ingest(self, platform: Platform, random: Random) -> None:
        if random.random() < 0.7:
            self.world.deliver(random)
        platform.ingest(self.name)

    def op_planned(self, platform: Platform, random: Random) -> None:
        """One of the runs that the planner asks for."""
        runs = [(plan.table, run.partitions) for plan in platform.plan(self.name) for run in plan.runs]
        if runs:
            table, partitions = random.choice(runs)
            platform.recompute_stale(self.name, table, partitions)

    def op_stale(self, platform: Platform, random: Random) -> None:
        """Stale cells of some partitions of a table, as a run does that knows which ones it touched itself."""
        if partitions := self._some_partitions(random):
            platform.recompute_stale(self.name, random.choice(tables.derived(platform.stream(self.name))), partitions)

    def op_whole(self, platform: Platform, random: Random) -> None:
        """Whole partitions of a table, as a person asks for them."""
        if partitions := self._some_partitions(random):
            platform.recompute(self.name, random.choice(tables.derived(platform.stream(self.name))), partitions)

    def op_repair(self, platform: Platform, random: Random) -> None:  # noqa: ARG002
        platform.repair(self.name) if self.state() else None

    def op_publish(self, platform: Platform, random: Random) -> None:
        self._followers.publish(platform, self.world.stream, random)

    def op_settings(self, platform: Platform, random: Random) -> None:  # noqa: ARG002
        """Other rules, or those of before."""
        self.world.settle_for(random.choice(self.world.timeouts), random.choice(self.world.windows))
        self._renew()

    def op_sessions(self, platform: Platform, random: Random) -> None:  # noqa: ARG002
        """The stream file has no sessions from now on, or has those of before again."""
        self.world.switch_sessions()
        self.world.stream = with_sinks(self.world.stream, self._folder)
        self._renew()

    def op_fields(self, platform: Platform, random: Random) -> None:  # noqa: ARG002
        """Another field tells when events happened; or the one of before."""
        self.world.tell_time_by(random.choice(("happened", "arrived")))
        self._renew()

    def op_start(self, platform: Platform, random: Random) -> None:  # noqa: ARG002
        self.world.start_at(random.choice((-1000, 0, 1)))
        self._renew()

    def op_buckets(self, platform: Platform, random: Random) -> None:
        platform.change_buckets(self.name, random.choice((1, 2, 4)))

    def op_lose(self, platform: Platform, random: Random) -> None:  # noqa: ARG002
        """The control database, the receipts, or both: nothing is taken for built that was stale."""
        lost, stale = random.choice(("control", "receipts", "both", "both")), self._stale()
        if lost != "receipts":
            for file in self.home.glob("control.db*"):
                file.unlink()
        if lost != "control":
            shutil.rmtree(self.home / "warehouse" / self.name / "receipts", ignore_errors=True)
            self._has_receipts = False
        self._renew()
        told = self._stale()
        if forgotten := self._wanted().intersection(stale - told):
            raise WrongError(f"after a loss ({lost}) no longer stale: {sorted(forgotten)}")
        if self._has_receipts and told != stale:
            raise WrongError(f"receipts do not tell that these are built: {sorted(told - stale)}")

    def op_maintain(self, platform: Platform, random: Random) -> None:
        """Upkeep, weeks later."""
        self.clock.advance(timedelta(days=random.choice((0, 30, 30))))
        platform.maintain(self.name)

    def op_replay(self, platform: Platform, random: Random) -> None:  # noqa: ARG002
        platform.rejected.replay(self.name) if self.state() else None

    def op_redecode(self, platform: Platform, random: Random) -> None:
        """Partitions are decoded again, often since the fields are others now: then records move."""
        if platform is self.platform and random.random() < 0.6:
            self.op_fields(platform, random)
            platform = self.platform
        if partitions := self._some_partitions(random):
            platform.rejected.redecode(self.name, partitions)

    def op_accept(self, platform: Platform, random: Random) -> None:
        """A file gets other content after it was read, and somebody lets it be read again."""
        if self.world.change(random) and self.state() and (changed := platform.source.waiting(self.name).changed):
            platform.source.accept_files(self.name, changed)

    def op_clock(self, platform: Platform, random: Random) -> None:  # noqa: ARG002
        self.clock.advance(timedelta(hours=random.choice((-48, -1, 1, 48))))

    def _stale(self) -> set[tuple[str, Cell]]:
        state = self.state()
        if state is None or len(state.buckets) > 1:
            return set()
        return {(plan.table, each.cell) for plan in self.judge.plan(self.name) for each in plan.stale}

    def _wanted(self) -> set[tuple[str, Cell]]:
        """Cells with rows in the table or its input; that others were built, too, need not outlive a loss."""
        state = self.state()
        if state is None:
            return set()
        rows = state.rows
        wanted = {
            (table, cell)
            for table in tables.derived(self.world.stream)
            for cell in (*rows[table], *rows[tables.INPUT_OF[table]])
        }
        return wanted | {(tables.DEDUPLICATED_EVENTS, cell) for cell in rows[tables.DUPLICATE_EVENTS]}

    def _some_partitions(self, random: Random) -> list[int]:
        state = self.state()
        if state is None:
            return []
        known = sorted({cell.partition for rows in state.rows.values() for cell in rows})
        return random.sample(known, random.randint(1, len(known))) if known else []

    def _renew(self) -> None:
        """Other rules, or other databases: every process begins anew."""
        self.platform, self._beside = self.another(), self.another()
        self.judge = light_platform(self.home, self.world.stream, self.clock)

    def _disturbed(self, platform: Platform, random: Random) -> AbstractContextManager[None]:
        """Another process does something just before one of this one's commits."""
        other, number = self.another(), random.randrange(2)
        name = random.choice(("ingest", "repair", "planned", "stale", "replay", "redecode", "buckets", "settings"))

        def act() -> None:
            with suppress(ConflictError):
                self._attempt(name, other, random)

        return before_commit(platform, number, act)

    # Judging

    def state(self) -> State | None:
        """The tables as they are published."""
        return self._reader.read(self.judge, self.world.stream)

    def check(self) -> None:
        """Raise WrongError if anything does not hold now."""
        stream = self.world.stream
        found = {table: self.judge.lake.catalog.load(self.name, table) for table in tables.all_of(stream)}
        heads = {name: head(table).snapshot_id for name, table in found.items() if table}
        now = (stream, heads)
        if now == self._judged or (state := self.state()) is None:
            return
        self._judged = now
        self._followers.remember(stream, state, heads)
        if wrong := list(wrong_figures(self.judge, stream, state)):
            raise WrongError("\n".join(wrong))
        plans = self.judge.plan(self.name) if len(state.buckets) == 1 else None
        if wrong := [*self.checks.of(stream, state, plans, has_receipts=self._has_receipts), *misplaced(stream, state)]:
            raise WrongError("\n".join(wrong))

    def _check_followers(self) -> None:
        for laws in (self._followers, self._points):
            if wrong := list(laws.wrong(self.judge, self.world.stream)):
                raise WrongError("\n".join(wrong))

    def finish(self) -> None:
        """Without anything new, ingest and a bounded number of ticks must lead to what the oracle says."""
        if not self.world.stream.sessions and self.random.random() < 0.5:
            self.op_sessions(self.platform, self.random)
        state = self.state()
        if state and len(state.buckets) > 1:
            raw = self.platform.lake.catalog.load_table(self.name, tables.RAW_EVENTS)
            self.platform.change_buckets(self.name, bucket_count(raw))
        self.platform = self.another()
        self.platform.ingest(self.name)
        for _ in range(TICKS):
            runs = [(plan.table, run.partitions) for plan in self.platform.plan(self.name) for run in plan.runs]
            if not runs:
                break
            for table, partitions in runs:
                self.platform.recompute_stale(self.name, table, partitions)
        stale = {plan.table: plan.stale for plan in self.platform.plan(self.name) if plan.stale}
        if stale:
            raise WrongError(f"still stale after {TICKS} ticks: {stale}")
        self.check()
        self._compare()
        point = self.platform.points.make(self.name)
        self._check_followers()
        if self.state() and point is None:
            raise WrongError("nothing is stale, but there is no point")
        if (state := self.state()) and (wrong := list(self._followers.finish(self.platform, self.world.stream, state))):
            raise WrongError("\n".join(wrong))

    def _compare(self) -> None:
        state = self.state()
        if state is None:
            return
        stream, found = self.world.stream, {table: state.all(table) for table in state.rows}
        wrong = table_differences(stream, found, state.records, SessionIds())
        rows = len(state.all(tables.RAW_EVENTS)) + len(state.rejected)
        read = self.platform.ledger.records_read(self.name) if self.world.sent is None else self.world.sent
        wrong += [f"raw_events: {rows} rows, but {read} records were read"] if rows != read else []
        if wrong:
            raise WrongError("\n".join(wrong))


def live(
    folder: Path, seed: int, ops: Sequence[Op], brokers: str | None = None, spark: SparkSession | None = None
) -> None:
    """Live through a program in an empty folder; raises WrongError, or what an operation should not raise.

    With `brokers` (`host:port`) the records come by a topic of this Kafka instead of files. With `spark` its workers
    do what work there is, and upkeep is its procedures.
    """
    with replaced(has_spark=spark is not None):
        life = Life(folder, seed, brokers, spark)
        for op in ops:
            life.do(op)
        life.finish()

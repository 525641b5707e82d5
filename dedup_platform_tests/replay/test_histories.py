"""Random histories of what is delivered, spoiled, put right, replayed, redecoded and repaired, against the oracle."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings, strategies as st
from pyspark.sql import SparkSession

from dedup_platform.testing import Record, Rules, histories
from dedup_platform_tests.replay.conftest import Deployment, deployment

STEPS = st.lists(
    st.sampled_from(["deliver", "deliver wrongly", "replay", "replay some", "redecode", "redecode wrongly", "repair"]),
    min_size=3,
    max_size=8,
)


def step(deploy: Deployment, what: str, batches: list[list[Record]], delivered: list[Record]) -> None:
    deploy.spoil() if "wrongly" in what else deploy.put_right()
    platform, name = deploy.platform, deploy.name
    before = deploy.coordinates() if what.startswith("re") else []
    match what.split()[0]:
        case "deliver" if batches:
            batch = batches.pop()
            delivered += batch
            deploy.write(batch)
            platform.ingest(name)
        case "replay":
            limit = 3 if what == "replay some" else None
            platform.rejected.replay(name, limit=limit)
            assert deploy.coordinates() == before
        case "redecode":
            days = sorted({deploy.stream.partitions.ordinal(each.event_time) for each in delivered})
            platform.rejected.redecode(name, days[::2])
            assert deploy.coordinates() == before
        case "repair":
            platform.repair(name)


@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, seed=st.integers(0, 2**16))
def test_tables_equal_the_oracle_whatever_was_wrong_in_between(
    steps: list[str], seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    with TemporaryDirectory(dir=tmp_path) as folder:
        deploy = deployment(Path(folder), spark)
        history = histories(seed, 10, Rules.of(deploy.stream), deploy.stream.partitions.start, batches=4)
        batches, delivered = [list(each) for each in history.batches], list[Record]()
        for what in ["deliver wrongly", *steps]:
            step(deploy, what, batches, delivered)
        deploy.put_right()
        deploy.platform.rejected.replay(deploy.name)
        assert deploy.platform.rejected.replay(deploy.name).snapshot_id is None
        deploy.platform.repair(deploy.name)
        deploy.check(delivered)

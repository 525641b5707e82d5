"""Runs of values: each record has the value of its run, however the runs were told."""

from dedup_platform.sources.repeated import Repeated, Runs


def test_runs_tell_the_value_of_each_record() -> None:
    runs = Runs[str]([Repeated("a", 2), ["b", "b", "a"], Repeated("a", 1), []])
    assert (runs.values, runs.counts) == (["a", "b", "a", "a"], [2, 2, 1, 1])
    assert [runs[place] for place in range(6)] == ["a", "a", "b", "b", "a", "a"]

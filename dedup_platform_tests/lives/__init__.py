"""Lives of a stream: everything that can happen to one, in random order, judged after every single commit.

A life is a short program: a list of operations, each with the seed of its details. It runs without Spark on real
Iceberg tables and a real control database, a second or so each. `python -m dedup_platform_tests.lives` lives many.
"""

from dedup_platform_tests.lives.life import Life, live
from dedup_platform_tests.lives.program import Op, program, shrunk

__all__ = ["Life", "Op", "live", "program", "shrunk"]

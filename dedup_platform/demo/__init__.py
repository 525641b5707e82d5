"""A click stream with known truth: generated, labelled, and scored against what the tables hold."""

from dedup_platform.demo.clicks import generate
from dedup_platform.demo.files import stream_file
from dedup_platform.demo.late import late_file
from dedup_platform.demo.truth import Click, Found, Repair, Score, Truth, Visit, score, score_repair

__all__ = [
    "Click",
    "Found",
    "Repair",
    "Score",
    "Truth",
    "Visit",
    "generate",
    "late_file",
    "score",
    "score_repair",
    "stream_file",
]

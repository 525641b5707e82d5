"""A path on S3: a bucket, then a glob over its keys in which dates may stand."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

__all__ = ["SCHEME", "S3Path"]

SCHEME = "s3://"

_GLOB = re.compile(r"[*?\[]")
_DATE = re.compile(r"\{date:([^{}]*)\}")
_DIGITS = {"%Y": 4, "%m": 2, "%d": 2, "%H": 2}
_DATES = "{date:%Y/%m/%d}, with %Y, %m, %d, %H and what stands between them"


@dataclass(frozen=True)
class S3Path:
    """`s3://bucket/key`, where `key` is a glob whose fixed beginning may hold dates, as `{date:%Y/%m/%d}`.

    `root` and `pattern` divide it as a path on this machine is divided, a date being a glob of digits.
    """

    bucket: str
    key: str

    @classmethod
    def parse(cls, path: str) -> "S3Path":
        """The parts of a path that begins with `s3://`. Raises ValueError, which says what is allowed."""
        bucket, _, key = path.removeprefix(SCHEME).partition("/")
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
            raise ValueError("names no bucket; write a pattern like s3://bucket/events/*.json.gz")
        if not key or key.endswith("/"):
            raise ValueError("names no files; write a pattern like s3://bucket/events/*.json.gz")
        for spelling in _DATE.findall(key):
            if set(re.findall(r"%.?", spelling)) - _DIGITS.keys() or not any(each in spelling for each in _DIGITS):
                raise ValueError(f"has a date that is none; write {_DATES}")
        beginning = _GLOB.split(key)[0]
        if re.search(r"[{}]", _DATE.sub("", key)):
            raise ValueError(f"has a brace that belongs to no date; write {_DATES}")
        if len(_DATE.findall(beginning)) < len(_DATE.findall(key)):
            raise ValueError("has a date behind *, ? or [; only what stands in front of them can be listed by dates")
        return cls(bucket, key)

    @property
    def root(self) -> str:
        """The beginning that all keys share, up to a slash, or empty; records' `source` is what follows it."""
        return self.prefix[: self.prefix.rfind("/") + 1]

    @property
    def pattern(self) -> str:
        """The glob below `root`."""
        return self._glob[len(self.root) :]

    @property
    def prefix(self) -> str:
        """The beginning that all keys share: what S3 is asked for when all of them are listed."""
        return _GLOB.split(self._glob)[0]

    def prefixes(self, since: datetime, until: datetime) -> list[str]:
        """What S3 is asked for when only the keys of some dates, in UTC, are listed, the last one included.

        Without dates in the path that is `prefix`, whatever the times.
        """
        return list(dict.fromkeys(self._beginning_at(time) for time in self._steps(since, until)))

    def prefix_of(self, key: str) -> str:
        """The prefix that a key is listed by: that of its own date. `prefix` for a key that has none."""
        found = self._beginning.match(key)
        return found.group() if found else self.prefix

    @property
    def step(self) -> timedelta:
        """How long one prefix of a date is: an hour or a day."""
        return timedelta(hours=1) if "%H" in self.key else timedelta(days=1)

    @cached_property
    def _glob(self) -> str:
        """The key with its dates as globs of digits."""
        return _DATE.sub(lambda date: _spelled(date[1], lambda digits: "[0-9]" * digits), self.key)

    @cached_property
    def _dated(self) -> str:
        """The beginning of the key with its dates."""
        return _GLOB.split(self.key)[0]

    @cached_property
    def _beginning(self) -> re.Pattern[str]:
        # Every second part is a date.
        parts = _DATE.split(self._dated)
        return re.compile(
            "".join(
                _spelled(part, lambda digits: f"[0-9]{{{digits}}}", re.escape) if number % 2 else re.escape(part)
                for number, part in enumerate(parts)
            )
        )

    def _beginning_at(self, time: datetime) -> str:
        return _DATE.sub(lambda date: time.strftime(date[1]), self._dated)

    def _steps(self, since: datetime, until: datetime) -> Iterator[datetime]:
        time = since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        time = time if "%H" in self.key else time.replace(hour=0)
        while time <= until:
            yield time
            time += self.step


def _spelled(date: str, digits: Callable[[int], str], text: Callable[[str], str] = str) -> str:
    """A date's spelling with something for so many digits in the place of each directive."""
    parts = re.split(r"(%.)", date)
    return "".join(digits(_DIGITS[part]) if part in _DIGITS else text(part) for part in parts)

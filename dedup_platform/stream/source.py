"""Where a stream's records come from."""

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from dedup_platform.stream.format import Format
from dedup_platform.stream.values import LATER, Count, Duration, FieldName, Size, only, origin_of

__all__ = ["FilesSource"]


def _local_glob(path: str) -> str:
    if "://" in path:
        raise ValueError(f"{LATER}; write a local path, absolute or relative to the stream file's folder")
    if not path or path.endswith("/"):
        raise ValueError("names no files; write a pattern like events/*.csv.gz")
    return path


class FilesSource(Format):
    """Files in a folder. `path` is a glob, absolute or relative to the stream file's folder.

    A file is read once it has not been modified for `settle`; a batch reads at most `max_batch_files` files and
    about `max_batch_bytes` bytes (a larger file is a batch of its own).
    """

    kind: Annotated[Literal["files"], only("files", later=("kafka",))]
    path: Annotated[FieldName, AfterValidator(_local_glob)]
    settle: Duration = timedelta(seconds=2)
    max_batch_files: Annotated[Count, Field(ge=1)] = 1000
    max_batch_bytes: Size = 2**30
    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    def model_post_init(self, context: Any) -> None:
        self._folder = origin_of(context).parent.resolve()

    @model_validator(mode="after")
    def _format_fits_files(self) -> "FilesSource":
        self.check_files()
        return self

    @property
    def root(self) -> Path:
        """The fixed folder in front of the first glob character; records' `source` is relative to it."""
        fixed = Path(self.path).parts[: self._fixed_parts]
        # The folder holds no symbolic link, so that `..` can be taken out by its letters.
        return Path(os.path.normpath(self._folder.joinpath(*fixed)))

    @property
    def pattern(self) -> str:
        """The glob below `root`."""
        return "/".join(Path(self.path).parts[self._fixed_parts :])

    @property
    def _fixed_parts(self) -> int:
        parts = Path(self.path).parts
        globs = [i for i, part in enumerate(parts) if re.search(r"[*?\[]", part)]
        return min([*globs, len(parts) - 1])

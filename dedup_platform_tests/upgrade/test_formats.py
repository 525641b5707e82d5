"""Records of every format have the rows and ids that the version before gave them.

The archive has records, plain ones and odd ones, three ways to name them for each format, and the digests of the rows
that the version before made of them.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dedup_platform.sources.files import list_files, read_group
from dedup_platform.stream import load_stream
from dedup_platform.testing.comparison import digest, row_texts
from dedup_platform_tests.upgrade.before import unpack_archive

ARCHIVE = Path(__file__).with_name("formats.tar.xz")
FORMATS = ("avro", "csv", "json", "parquet", "protobuf")
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    unpack_archive(ARCHIVE, folder)
    return folder


@pytest.mark.parametrize("event_id", ["field", "all", "some"])
@pytest.mark.parametrize("file_format", FORMATS)
def test_rows_are_what_they_were(file_format: str, event_id: str, folder: Path) -> None:
    name = f"{file_format}-{event_id}"
    stream = load_stream(folder / f"{name}.yaml")
    files = [(file, 0) for file in list_files(stream, NOW).ready]
    assert len(files) == 3
    rows = [row for frame in read_group(stream, [files], 0) for row in frame.iter_rows(named=True)]
    found = {
        "rows": len(rows),
        "rejected": sum(row["rejection_reason"] is not None for row in rows),
        "sha256": digest(row_texts(rows)),
    }
    assert found == json.loads((folder / "expected.json").read_text(encoding="utf-8"))[name]

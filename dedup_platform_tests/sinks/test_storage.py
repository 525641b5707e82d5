"""Objects in a folder and on a real S3 server: who creates one first, and what is listed."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest
from botocore.exceptions import ClientError

from dedup_platform.sinks.storage import FolderStorage, S3Storage, Storage
from dedup_platform.sources.s3.access import S3Access
from dedup_platform.testing.servers import S3Server
from dedup_platform_tests.servers import new_name

AT_ONCE = 16


@pytest.fixture(params=["folder", "S3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return FolderStorage(tmp_path / "out")
    server: S3Server = request.getfixturevalue("s3_server")
    bucket = new_name("storage-")
    server.create_bucket(bucket)
    access = S3Access(server.endpoint, "us-east-1", True, server.access_key, server.secret_key)
    return S3Storage(access, bucket, "some/where/")


def test_of_many_who_create_one_object_one_does(storage: Storage) -> None:
    for round_ in range(5):
        with ThreadPoolExecutor(AT_ONCE) as pool:
            contents = [f"{number}".encode() for number in range(AT_ONCE)]
            won = list(pool.map(lambda content, name=f"log/{round_}": storage.create(name, content), contents))
        assert sum(won) == 1
        assert storage.get(f"log/{round_}") == contents[won.index(True)]


def test_what_is_put_takes_the_place_of_what_was_there(storage: Storage) -> None:
    assert storage.get("a/b") is None
    storage.put("a/b", b"one")
    storage.put("a/b", b"other")
    assert storage.get("a/b") == b"other"
    assert not storage.create("a/b", b"third")


def test_names_come_in_order_after_one(storage: Storage) -> None:
    assert list(storage.names("log", "")) == []
    names = [f"{number:04}.json" for number in range(0, 2500, 100)]
    for name in reversed(names):
        storage.put(f"log/{name}", b"x")
    storage.put("other/0000.json", b"x")
    assert list(storage.names("log", "")) == names
    assert list(storage.names("log", "1100.json")) == names[12:]
    assert list(storage.names("log", names[-1])) == []


def test_a_folder_shows_nothing_that_is_half_written(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    full = patch("dedup_platform.sinks.storage.os.fsync", side_effect=OSError("no space"))
    with full, pytest.raises(OSError, match="no space"):
        storage.put("log/a", b"x")
    assert list(storage.names("log", "")) == []
    assert storage.get("log/a") is None


def test_on_s3_an_answer_that_was_lost_is_not_taken_for_somebody_else(s3_server: S3Server) -> None:
    bucket = new_name("storage-")
    s3_server.create_bucket(bucket)
    access = S3Access(s3_server.endpoint, "us-east-1", True, s3_server.access_key, s3_server.secret_key)
    storage = S3Storage(access, bucket, "")
    storage.put("a", b"mine")  # by the request whose answer was lost
    assert storage.create("a", b"mine")
    assert not storage.create("a", b"theirs")
    with pytest.raises(ClientError):
        S3Storage(access, new_name("none-"), "").create("a", b"x")

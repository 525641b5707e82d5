"""The S3 server that tests get: it serves a real client, and keeps its objects when it is killed."""

from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from dedup_platform.errors import MissingPartError
from dedup_platform.testing.servers import S3Server
from dedup_platform_tests.servers import new_name, running


def test_objects_come_back_and_are_listed(s3_server: S3Server) -> None:
    bucket, client = new_name(), s3_server.client()
    s3_server.create_bucket(bucket)
    client.put_object(Bucket=bucket, Key="events/a b.json", Body=b"{}\n" * 100_000)
    assert client.get_object(Bucket=bucket, Key="events/a b.json")["Body"].read() == b"{}\n" * 100_000
    [found] = client.list_objects_v2(Bucket=bucket, Prefix="events/")["Contents"]
    assert (found["Key"], found["Size"]) == ("events/a b.json", 300_000)


def test_an_object_is_made_only_where_there_is_none(s3_server: S3Server) -> None:
    bucket, client = new_name(), s3_server.client()
    s3_server.create_bucket(bucket)
    client.put_object(Bucket=bucket, Key="one", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=bucket, Key="one", Body=b"second", IfNoneMatch="*")
    assert client.get_object(Bucket=bucket, Key="one")["Body"].read() == b"first"


def test_who_has_not_the_key_is_refused(s3_server: S3Server, tmp_path: Path) -> None:
    with running(S3Server, tmp_path, secret_key="another") as other, pytest.raises(ClientError, match="Signature"):
        other.client(s3_server.endpoint).list_buckets()


def test_a_killed_server_comes_back_on_its_port_with_its_objects(tmp_path: Path) -> None:
    with running(S3Server, tmp_path, buckets=("lake",)) as server:
        client, pid = server.client(), server.pid
        client.put_object(Bucket="lake", Key="kept", Body=b"before")
        server.kill()
        assert not server.is_answering()
        with pytest.raises(EndpointConnectionError):
            client.list_buckets()
        server.restart()
        assert server.pid not in (None, pid)
        assert client.get_object(Bucket="lake", Key="kept")["Body"].read() == b"before"


def test_what_is_not_installed_is_named_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "GOBIN", "GOPATH", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(MissingPartError, match=r"versitygw .* get it with: go install github\.com.*@v1\.8\.0"):
        S3Server(tmp_path)

"""Real servers for tests and for trying the platform: Kafka, S3 and Postgres as processes of this machine.

Each starts on a free port of the loopback interface, keeps its data in a given folder, can be killed, and started again
on the same port and data. A part that is not installed is a MissingPartError, which says how to get it.
"""

from dedup_platform.processes import free_port
from dedup_platform.testing.servers.kafka import KafkaServer
from dedup_platform.testing.servers.postgres import PostgresServer
from dedup_platform.testing.servers.process import ServerProcess
from dedup_platform.testing.servers.proxy import Faults, FaultyProxy, LaggingListing
from dedup_platform.testing.servers.s3 import S3Server

__all__ = [
    "Faults",
    "FaultyProxy",
    "KafkaServer",
    "LaggingListing",
    "PostgresServer",
    "S3Server",
    "ServerProcess",
    "free_port",
]

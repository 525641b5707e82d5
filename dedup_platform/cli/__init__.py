"""The command line: arguments -> call -> print."""

from dedup_platform.cli.commands import app, main
from dedup_platform.cli.console import out
from dedup_platform.cli.exits import EXIT_CODES, FAILED, INTERRUPTED, NOT_EQUAL, REFUSED, UNHEALTHY, exit_code

__all__ = [
    "EXIT_CODES",
    "FAILED",
    "INTERRUPTED",
    "NOT_EQUAL",
    "REFUSED",
    "UNHEALTHY",
    "app",
    "exit_code",
    "main",
    "out",
]

"""The steps of a run, heard from outside: real functions of one platform are wrapped, none is replaced."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dedup_platform.lake.receipts import BuildReceipt, Receipt
from dedup_platform.platform import Platform
from dedup_platform.tables import RAW_EVENTS

Hear = Callable[[str], None]
Name = Callable[..., str]


def tell_steps(platform: Platform, hear: Hear) -> None:
    """Call `hear` with the name of every step of every run of this platform, while the run stands at that step."""
    lake, ledger = platform.lake, platform.ledger
    published = ["nothing"]

    def remember(staged: Any) -> str:
        published[0] = staged.table
        return f"after publishing {staged.table}"

    def watch(stream: Any, *names: str) -> str:
        for table in names:
            _watch_files(Path(lake._load(stream.name, table).location()), f"amid the files of {table}", hear)
        return f"before writing {names}"

    _tell(
        lake.catalog.iceberg, "create_table", hear, after=lambda place, *_: f"before the first snapshot of {place[1]}"
    )
    _tell(lake, "_create_table", hear, after=lambda _, table, __: f"after creating {table}")
    _tell(platform.source._ingest._files, "_stage", hear, before=lambda stream, *_: watch(stream, RAW_EVENTS))
    _tell(platform._rebuilding._recompute, "_old", hear, before=lambda build, _, *names: watch(build.stream, *names))
    _tell(lake.catalog, "write_receipt", hear, before=lambda *args: f"before the receipt of {_table_of(args[-1])}")
    _tell(lake, "publish", hear, before=lambda staged: f"before publishing {staged.table}", after=remember)
    _tell(platform._rebucketing, "_copies_of", hear, after=lambda _, layout, *__: f"after copying {layout.table}")
    _tell(platform._rebucketing, "_swap", hear, after=lambda _, layout, *__: f"after swapping {layout.table}")
    _tell(ledger, "sync", hear, after=lambda _: f"after folding {published[0]}")
    sa.event.listen(ledger.engine, "commit", lambda _: hear(f"amid the fold of {published[0]}"))


def _tell(owner: Any, function: str, hear: Hear, before: Name | None = None, after: Name | None = None) -> None:
    real = getattr(owner, function)

    def told(*args: Any, **named: Any) -> Any:
        if before:
            hear(before(*args))
        result = real(*args, **named)
        if after:
            hear(after(*args))
        return result

    setattr(owner, function, told)


def _table_of(receipt: Receipt) -> str:
    return receipt.table if isinstance(receipt, BuildReceipt) else RAW_EVENTS


def _watch_files(table: Path, step: str, hear: Hear) -> None:
    """Call `hear` as soon as a data file begins to exist in the table's folder."""

    def files() -> set[Path]:
        return set(table.glob("data/**/*.parquet"))

    known = files()

    def watch() -> None:
        while not files() - known:
            time.sleep(0.001)
        hear(step)

    threading.Thread(target=watch, daemon=True).start()

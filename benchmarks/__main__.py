"""`python -m benchmarks`: run the measures, print a table, write `bench.json`, a plot and, if asked, a page."""

import signal
import sys
import time
from importlib import import_module

from rich.console import Console

from benchmarks import report
from benchmarks.bench import Bench
from benchmarks.figures import Figures
from benchmarks.judge import DisagreementError
from benchmarks.machine import about
from benchmarks.options import parse
from benchmarks.page import write_page
from benchmarks.process import ContenderError
from dedup_platform.errors import DedupPlatformError


def main() -> int:
    """Returns 1 if a contender failed or gave another result than the others, or a part is missing."""
    # As if interrupted by hand: the contenders end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options = parse()
    console = Console(width=None if sys.stdout.isatty() else 150)
    figures = Figures(options.folder / "bench.json", options.described(), about())
    bench = Bench(options, figures, console)
    started = time.monotonic()
    try:
        for name in options.measures:
            figures.begin(name)
            import_module(f"benchmarks.measures.{name}").measure(bench)
    except (ContenderError, DisagreementError, DedupPlatformError) as error:
        console.print(str(error), style="bold red", highlight=False, markup=False)
        return 1
    report.show(figures, console)
    report.plot(figures, options.folder / "bench.png")
    if options.docs:
        write_page(figures, options.docs)
    console.print(f"{(time.monotonic() - started) / 60:.0f} minutes", style="dim")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m dedup_platform_tests.fuzzing`: damage inputs and have them read; of what goes wrong, say the one input."""

import argparse
import base64
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ["POLARS_MAX_THREADS"] = "1"  # before it is loaded; inputs are too small for more

from dedup_platform_tests.fuzzing.children import Outcome, in_child
from dedup_platform_tests.fuzzing.kinds import KINDS, write_all_schemas
from dedup_platform_tests.fuzzing.reading import inputs, read

MODULE = "dedup_platform_tests.fuzzing"
SIZES = {False: 1000, True: 4000}
"""Inputs that a seed makes: files, and messages, which cost less."""
SECONDS = 30
"""Of processor time for a batch, which takes less than one."""
MEMORY_FOLDER = Path("/dev/shm")
CORPUS = Path(__file__).parent / "corpus"
"""`corpus/KIND/NAME`: inputs that broke something once."""


class Fuzzing:
    """Batches in children of this process, with a folder for what they read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        write_all_schemas(folder)

    def outcome(self, kind: str, seed: int, size: int, chosen: Sequence[int] | None = None) -> Outcome:
        """Read the inputs of a seed, or those chosen of them."""

        def work() -> None:
            made = inputs(KINDS[kind], kind, seed, size, self._folder)
            read(KINDS[kind], made if chosen is None else [made[each] for each in chosen], self._folder)

        return in_child(work, self._folder / "log", SECONDS)

    def of_contents(self, kind: str, contents: Sequence[bytes]) -> Outcome:
        """Read these."""
        return in_child(lambda: read(KINDS[kind], contents, self._folder), self._folder / "log", SECONDS)

    def narrowed(self, kind: str, seed: int, size: int) -> tuple[Sequence[int], Outcome]:
        """The fewest inputs that still go wrong, by halving."""
        chosen: Sequence[int] = range(size)
        outcome = self.outcome(kind, seed, size, chosen)
        while len(chosen) > 1:
            half = len(chosen) // 2
            for part in (chosen[:half], chosen[half:]):
                found = self.outcome(kind, seed, size, part)
                if found.wrong:
                    chosen, outcome = part, found
                    break
            else:
                break
        return chosen, outcome

    def told(self, kind: str, seed: int, size: int) -> str:
        """What goes wrong, the command that repeats it, and the bytes."""
        chosen, outcome = self.narrowed(kind, seed, size)
        if len(chosen) == size:
            only: Sequence[str] = ()
            said = ["(no part of them alone)"]
        else:
            only = ("--only", *map(str, chosen))
            said = self._encoded(kind, seed, size, chosen)
        command = shlex.join(["python", "-m", MODULE, "--kind", kind, "--seed", str(seed), "--size", str(size), *only])
        lines = [command, *said, *outcome.said.splitlines()[-12:]]
        return "\n".join([f"{kind}, seed {seed}: {outcome.wrong}", *(f"    {line}" for line in lines)])

    def _encoded(self, kind: str, seed: int, size: int, chosen: Sequence[int]) -> list[str]:
        """In base64; made in a child, as this process must begin no threads."""

        def work() -> None:
            made = inputs(KINDS[kind], kind, seed, size, self._folder)
            print(*(base64.b64encode(made[each]).decode() for each in chosen), sep="\n", flush=True)  # noqa: T201

        return in_child(work, self._folder / "log", SECONDS).said.splitlines()


def main() -> int:
    """Exit status 1 if anything went wrong."""
    options = _options()
    with TemporaryDirectory(dir=MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None, prefix="fuzzing") as folder:
        fuzzing = Fuzzing(Path(folder))
        if options.only:
            return _say(fuzzing.outcome(options.kind[0], options.seed, options.size or 1000, options.only))
        code = 0
        for wrong in chain(_wrong_in_corpus(fuzzing, options.kind), _wrong_in_batches(fuzzing, options)):
            print(wrong, flush=True)  # noqa: T201
            code = 1
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", nargs="*", choices=KINDS, default=[*KINDS], metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--size", type=int, help="inputs that a seed makes (1000 files or 4000 messages)")
    parser.add_argument("--inputs", type=int, help="so many in all, then end")
    parser.add_argument("--minutes", type=float, help="end after so many minutes")
    parser.add_argument("--verbose", action="store_true", help="a line for each batch")
    parser.add_argument("--only", type=int, nargs="*", help="of one kind and seed, these inputs alone")
    return parser.parse_args()


def _say(outcome: Outcome) -> int:
    print(outcome.said, outcome.wrong or "all is well", sep="\n")  # noqa: T201
    return 1 if outcome.wrong else 0


def _wrong_in_corpus(fuzzing: Fuzzing, kinds: Sequence[str]) -> Iterator[str]:
    for file in sorted(CORPUS.glob("*/*")):
        if file.parent.name in kinds:
            outcome = fuzzing.of_contents(file.parent.name, [file.read_bytes()])
            if outcome.wrong:
                yield f"{file.relative_to(CORPUS)}: {outcome.wrong}\n{outcome.said}"


def _wrong_in_batches(fuzzing: Fuzzing, options: argparse.Namespace) -> Iterator[str]:
    """Kinds take turns; each batch has a seed of its own."""
    begun, done, seconds, memory = time.monotonic(), 0, 0.0, 0
    for number in count():
        if options.inputs and done >= options.inputs:
            break
        if options.minutes and time.monotonic() > begun + 60 * options.minutes:
            break
        kind, seed = options.kind[number % len(options.kind)], options.seed + number // len(options.kind)
        size = options.size or SIZES[KINDS[kind].is_message]
        outcome = fuzzing.outcome(kind, seed, size)
        done, seconds, memory = done + size, seconds + outcome.seconds, max(memory, outcome.memory)
        if outcome.wrong:
            yield fuzzing.told(kind, seed, size)
        if options.verbose:
            print(f"{kind}, seed {seed}: {outcome.seconds:.2f} s, {outcome.memory >> 20} MB", flush=True)  # noqa: T201
    print(f"{done:,} inputs, {seconds:.0f} s of processor time, {memory >> 20} MB at most", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())

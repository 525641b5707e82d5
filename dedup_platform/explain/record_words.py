"""What is told of a record: which event it is of and what was decided, or why it is no event."""

from dedup_platform.explain.event_words import VERDICTS, steps_of_event
from dedup_platform.explain.record import RecordAnswer
from dedup_platform.explain.sentences import (
    Step,
    Told,
    Words,
    capitalized,
    looked_into,
    moment,
    printable,
    quoted,
    stale_tables,
)


def told_of_record(answer: RecordAnswer, words: Words) -> Told:
    """A sentence and steps."""
    if answer.event:
        steps = list(steps_of_event(answer.event, words))
    elif answer.rejection_reason:
        steps = _rejected(answer, words)
    else:
        steps = [["It may not be taken in yet: `dedup-platform status` shows what waits."]]
    return Told(_sentence(answer, words), (*steps, *stale_tables(answer.stale), [looked_into(answer.read)]))


def _sentence(answer: RecordAnswer, words: Words) -> str:
    name = words.record(answer.coordinates)
    if answer.event:
        verdict = next(each.verdict for each in answer.event.records if each.coordinates == answer.coordinates)
        return f"{capitalized(name)} is of event {words.event(answer.event.key)}: {VERDICTS[verdict]}."
    if answer.rejection_reason:
        return f"{capitalized(name)} is no event: it was rejected ({printable(answer.rejection_reason)})."
    return f"There is no {name} in {words.stream.name}."


def _rejected(answer: RecordAnswer, words: Words) -> list[Step]:
    source, partition, offset, index = answer.coordinates
    options = f"{f' --partition {partition}' if partition else ''}{f' --index {index}' if index else ''}"
    show = f"dedup-platform rejected show {words.stream.name} {quoted(source)} {offset}{options}"
    arrived = f"It arrived {moment(answer.arrival_time)}." if answer.arrival_time else ""
    delivered = [f"Delivered by {words.commit(answer.delivered)}."] if answer.delivered else []
    return [
        [arrived, *delivered],
        [
            "It is shown whole by",
            show,
            "Once the stream file is right, `dedup-platform rejected replay` decodes it again.",
        ],
    ]

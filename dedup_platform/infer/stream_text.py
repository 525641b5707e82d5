"""A proposal as the text of a stream file, with its evidence as comments."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from dedup_platform.escapes import one_line
from dedup_platform.infer.attributes import ProposedAttribute
from dedup_platform.infer.proposal import Proposal, Said
from dedup_platform.stream import format_duration

__all__ = ["stream_text"]

_COMMENT_AT = 60
"""The column at which comments begin, where there is room."""


def stream_text(name: str, source: Mapping[str, Any], proposal: Proposal) -> str:
    """The stream file of this name. What comes from records is quoted as YAML takes it, and escaped in comments."""
    return "".join(f"{each.rstrip()}\n" for each in _lines(name, source, proposal))


def _lines(name: str, source: Mapping[str, Any], proposal: Proposal) -> Iterator[str]:
    sampled = proposal.sampled
    malformed = f", and {sampled.malformed:,} could not be read" if sampled.malformed else ""
    yield _comment(f"Proposed from {len(sampled.records):,} records of {sampled.place}{malformed}.")
    yield _comment("`dedup-platform check` tells what the records become; mend what is not right, then `run`.")
    yield f"name: {_yaml(name)}"
    yield from _source(source, sampled.layout.evidence)
    yield "fields:"
    yield _key("  entity_id", proposal.entity)
    yield _key("  event_id", proposal.event_id)
    yield _key("  event_time", proposal.event_time)
    if proposal.arrival.value is None:
        yield _comment(f"arrival_time {proposal.arrival.evidence}", "  ")
    else:
        yield _key("  arrival_time", Said(proposal.arrival.value, proposal.arrival.evidence))
    yield from _attributes(proposal.attributes, proposal.others)
    if proposal.unknown_entity:
        yield _with("missing_entity: keep", "events without an entity are in no session; or `reject`")
    yield _with(f"partitions: {{granularity: day, start: {proposal.start.value}}}", proposal.start.evidence)
    yield "sessions:"
    yield _with(f"  timeout: {format_duration(proposal.timeout.length)}", proposal.timeout.evidence)
    yield from _aggregates(proposal.attributes)


def _source(source: Mapping[str, Any], evidence: str) -> Iterator[str]:
    yield "source:"
    for key, value in source.items():
        yield _with(f"  {key}: {_yaml(value)}", evidence if key == "format" else "")


def _attributes(first: Sequence[ProposedAttribute], others: Sequence[ProposedAttribute]) -> Iterator[str]:
    if first:
        yield "  attributes:"
    elif others:
        yield "  # attributes:"
    for each in first:
        yield _with(f"    {_attribute(each)}", each.column.evidence)
    for each in others:
        yield _with(f"    # {one_line(_attribute(each))}", each.column.evidence)


def _attribute(each: ProposedAttribute) -> str:
    field = _yaml(each.column.field)
    return f"{each.name}: {field}" if each.type is None else f"{each.name}: {{field: {field}, type: {each.type}}}"


def _aggregates(attributes: Iterable[ProposedAttribute]) -> Iterator[str]:
    numbers = [each.name for each in attributes if each.type == "long" or (each.type or "").startswith('"decimal')]
    texts = [each.name for each in attributes if each.type is None]
    examples = [f"total: {{sum: {name}}}" for name in numbers[:1]] + [f"first: {{first: {name}}}" for name in texts[:1]]
    if examples:
        yield f"  # aggregates: {{{', '.join(examples)}}}"


def _key(key: str, said: Said) -> str:
    return _with(f"{key}: {_yaml(said.value)}", said.evidence)


def _with(text: str, comment: str) -> str:
    return f"{text.ljust(_COMMENT_AT - 1)} # {one_line(comment)}" if comment else text


def _comment(text: str, indent: str = "") -> str:
    return f"{indent}# {one_line(text)}"


def _yaml(value: Any) -> str:
    """A value on one line, with nothing in it that is not printed."""
    text = _dumped(value, True)
    # What YAML prints may still turn the direction of writing.
    return text if text.isprintable() else _dumped(value, False)


def _dumped(value: Any, allow_unicode: bool) -> str:
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=10**9, allow_unicode=allow_unicode, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")

"""What a sample of records tells of a stream: a proposal for its stream file, each part with its evidence.

Pure functions: from the first bytes of a file to its format, from records to columns of texts, from columns to
candidates for times, ids and entities. Nothing here reads a file, asks a person or writes.
"""

from dedup_platform.infer.layout import Layout, layout_of
from dedup_platform.infer.proposal import LONGEST, Choose, Option, Proposal, Sampled, proposed
from dedup_platform.infer.stream_text import stream_text

__all__ = ["LONGEST", "Choose", "Layout", "Option", "Proposal", "Sampled", "layout_of", "proposed", "stream_text"]

"""A stream in figures and pictures, as one page of HTML that is the same for the same tables."""

from dedup_platform.report.gathering import Report, SourceFigures, gather
from dedup_platform.report.page import page

__all__ = ["Report", "SourceFigures", "gather", "page"]

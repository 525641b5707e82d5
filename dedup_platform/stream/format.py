"""How records are written: the format of files or messages, and what a format needs besides its name."""

from typing import Literal

from pydantic import Field, model_validator

from dedup_platform.stream.values import FieldName, FieldNames, Part

__all__ = ["CsvFormat", "Format", "JsonFormat"]


class CsvFormat(Part):
    """The names of the columns, in order, for records without a header."""

    columns: FieldNames


class JsonFormat(Part):
    """Messages that hold many events: `records` names the list of objects, one event each."""

    records: FieldName


class Format(Part):
    """How the records of a source are written. What a format needs stands beside it, under the format's own name."""

    format: Literal["csv", "json", "parquet"]
    csv: CsvFormat | None = None
    json_format: JsonFormat | None = Field(None, alias="json")

    @model_validator(mode="after")
    def _parts_are_of_this_format(self) -> "Format":
        for name, part in {"csv": self.csv, "json": self.json_format}.items():
            if part and name != self.format:
                raise ValueError(f"{name} is for the format {name}, not for {self.format}")
        return self

    def check_messages(self) -> None:
        """Raise ValueError unless messages can be read with this: a message has neither a header nor a file's end."""
        if self.format == "parquet":
            raise ValueError("format parquet is for files; allowed for messages: csv, json")
        if self.format == "csv" and not self.csv:
            raise ValueError("messages of csv have no header; name the columns: csv: {columns: [...]}")

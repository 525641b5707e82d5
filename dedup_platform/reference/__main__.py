"""Writes both files."""

from pathlib import Path

from dedup_platform.reference import page, schema_text

_DOCS = Path(__file__).parents[2] / "docs"

if __name__ == "__main__":
    (_DOCS / "stream.schema.json").write_text(schema_text(), encoding="utf-8")
    (_DOCS / "reference.md").write_text(page(), encoding="utf-8")

"""What a stream file and the environment may say, for people and for editors, from the models that check it.

`python -m dedup_platform.reference` writes docs/reference.md and docs/stream.schema.json of this checkout. What a key
means is the text below it in its model: a description in two places would soon be two descriptions.
"""

from dedup_platform.reference.page import page
from dedup_platform.reference.schema import schema, schema_text

__all__ = ["page", "schema", "schema_text"]

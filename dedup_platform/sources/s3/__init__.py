"""Objects on S3, or on what speaks like it, as files of a source: listed by their keys, read as they were listed."""

from dedup_platform.sources.s3.access import S3Access
from dedup_platform.sources.s3.listing import ListedKey, list_keys
from dedup_platform.sources.s3.objects import changed_objects, opened_object

__all__ = ["ListedKey", "S3Access", "changed_objects", "list_keys", "opened_object"]

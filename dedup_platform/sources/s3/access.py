"""Who is asked for objects on S3, and as whom."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dedup_platform.settings import Settings


@dataclass(frozen=True)
class S3Access:
    """An endpoint and who we are there. What is None is for boto3 to find: `AWS_*` variables, profiles, roles.

    Goes to workers inside of their task, and nowhere else.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = True
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, settings: "Settings") -> "S3Access":
        """That of a deployment: the same as for a warehouse on S3."""
        # Workers have no settings, and need not wait for what these import.
        from dedup_platform.settings import revealed

        return cls(
            endpoint=settings.s3_endpoint,
            region=settings.s3_region,
            path_style=settings.s3_path_style,
            access_key_id=revealed(settings.s3_access_key_id),
            secret_access_key=revealed(settings.s3_secret_access_key),
        )

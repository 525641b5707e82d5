"""What steps print, kept on S3 by Dagster's own library for it, where the deployment's settings say so."""

from typing import Any, Final

import yaml

from dedup_platform.settings import Settings

_CLASS: Final = {"module": "dagster_aws.s3.compute_log_manager", "class": "S3ComputeLogManager"}
_UPLOAD_SECONDS: Final = 30
"""How often the output of a step that is still at work is stored: another machine's UI sees no file of this one."""


def section(settings: Settings) -> str:
    """The part of `dagster.yaml` that says so; empty where steps' output stays in Dagster's home.

    It holds no keys: Dagster's library finds them as Amazon's clients do.
    """
    if not settings.compute_logs:
        return ""
    config: dict[str, Any] = {
        **_place(settings),
        "local_dir": str(settings.dagster_home / "storage"),
        "skip_empty_files": True,
        "upload_interval": _UPLOAD_SECONDS,
    }
    if settings.s3_endpoint:
        config["endpoint_url"] = settings.s3_endpoint
    if settings.s3_region:
        config["region"] = settings.s3_region
    return "\n" + yaml.safe_dump({"compute_logs": {**_CLASS, "config": config}}, sort_keys=False)


def is_in(configuration: str, settings: Settings) -> bool:
    """Whether a `dagster.yaml` keeps steps' output where the settings say."""
    found = (yaml.safe_load(configuration) or {}).get("compute_logs") or {}
    config = found.get("config") or {}
    return found.get("class") == _CLASS["class"] and _place(settings).items() <= config.items()


def _place(settings: Settings) -> dict[str, str]:
    bucket, _, prefix = str(settings.compute_logs).removeprefix("s3://").partition("/")
    return {"bucket": bucket, "prefix": prefix.strip("/")}

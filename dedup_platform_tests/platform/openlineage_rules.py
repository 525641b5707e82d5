"""What OpenLineage's specification (2-0-2) demands of a run event, and of the facets that we tell, as a JSON schema.

Written from the rules of its fields: no package ships the schema. Where the specification lets anything else stand
beside, nothing else may: what is not meant to be told is not.
"""

from typing import Any

_SPECIFICATION = "https://openlineage\\.io/spec"
_TEXT = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 0}


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def _facet(name: str, required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    url = {"type": "string", "format": "uri", "pattern": f"^{_SPECIFICATION}/facets/.+/{name}\\.json#/"}
    return _object({"_producer": {"type": "string", "format": "uri"}, "_schemaURL": url, **required}, **optional)


_FIELD = _object(
    {"name": _TEXT, "type": _TEXT},
    description=_TEXT,
    ordinal_position=_COUNT,
    fields={"type": "array", "items": {"$ref": "#/definitions/field"}},
)
_VERSION = _facet("DatasetVersionDatasetFacet", {"datasetVersion": {"type": "string", "pattern": "^[0-9]+$"}})
_IDENTIFIERS = {"type": "array", "minItems": 1, "items": _object({"namespace": _TEXT, "name": _TEXT, "type": _TEXT})}
_SYMLINKS = _facet("SymlinksDatasetFacet", {"identifiers": _IDENTIFIERS})
_SCHEMA = _facet(
    "SchemaDatasetFacet", {"fields": {"type": "array", "minItems": 1, "items": {"$ref": "#/definitions/field"}}}
)
_STATISTICS = _facet("OutputStatisticsOutputDatasetFacet", {"rowCount": _COUNT, "size": _COUNT, "fileCount": _COUNT})
_JOB_TYPE = _facet("JobTypeJobFacet", {"processingType": {"enum": ["BATCH"]}, "integration": _TEXT}, jobType=_TEXT)
_INPUT_FACETS = _object({}, version=_VERSION, symlinks=_SYMLINKS)
_TAG = _object(dict.fromkeys(("key", "value", "source"), _TEXT))
_TAGS = _facet("TagsRunFacet", {"tags": {"type": "array", "items": _TAG}})
"""The client's own version, which it tells itself."""
_NAMED: dict[str, Any] = {"namespace": _TEXT, "name": _TEXT}

RUN_EVENT = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "definitions": {"field": _FIELD},
    **_object(
        {
            "eventTime": {"type": "string", "format": "date-time"},
            "eventType": {"enum": ["COMPLETE"]},
            "producer": {"type": "string", "format": "uri"},
            "schemaURL": {
                "type": "string",
                "pattern": "^https://openlineage\\.io/spec/2-0-2/OpenLineage\\.json#/.*RunEvent$",
            },
            "run": _object(
                {"runId": {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}},
                facets=_object({}, tags=_TAGS),
            ),
            "job": _object(_NAMED, facets=_object({"jobType": _JOB_TYPE})),
            "inputs": {
                "type": "array",
                "items": _object(
                    _NAMED, facets=_object({}, version=_VERSION, symlinks=_SYMLINKS), inputFacets=_object({})
                ),
            },
            "outputs": {
                "type": "array",
                "minItems": 1,
                "items": _object(
                    {
                        **_NAMED,
                        "facets": _object({"schema": _SCHEMA, "version": _VERSION, "symlinks": _SYMLINKS}),
                        "outputFacets": _object({"outputStatistics": _STATISTICS}),
                    }
                ),
            },
        }
    ),
}

"""A report as Parquet: a row for each finding, and the report itself in the file's metadata."""

from __future__ import annotations

import json

from sexton.schemas.forms import to_json
from sexton.streaming_jobs.collectors.report import VERSION, Finding, Report, to_lines

__all__ = ["to_parquet"]


def to_parquet(report: Report) -> bytes:
    """Return the bytes of the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, number = pa.string(), pa.int64()
    schema = pa.schema(
        [
            *((name, text) for name in ("report_id", "collector", "bucket", "scope")),
            *((name, text) for name in ("cause", "state", "place", "tenant", "detail")),
            *((name, number) for name in ("objects", "bytes")),
            *((name, text) for name in ("intent_id", "intent")),
        ],
        metadata={"sexton.version": str(VERSION), "sexton.report": next(to_lines(report))},
    )
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([_row(report, each) for each in report.findings], schema), sink)
    return bytes(sink.getvalue().to_pybytes())


def _row(report: Report, finding: Finding) -> dict[str, str | int | None]:
    intent = finding.intent
    return {
        "report_id": report.report_id,
        "collector": report.collector,
        "bucket": report.bucket,
        "scope": report.prefix,
        "cause": finding.cause,
        "state": finding.state.value,
        "place": finding.place,
        "tenant": finding.tenant,
        "detail": finding.detail,
        "objects": finding.objects,
        "bytes": finding.bytes,
        "intent_id": intent.intent_id if intent else None,
        "intent": json.dumps(to_json(intent)) if intent else None,
    }

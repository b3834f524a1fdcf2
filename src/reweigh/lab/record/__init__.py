"""The record of a run: header, rows and result; archives of many runs."""

from reweigh.lab.record.archive import Unpacked, pack, unpack
from reweigh.lab.record.files import RecordError
from reweigh.lab.record.header import Header, environment, read_header
from reweigh.lab.record.record import (
    Record,
    Summary,
    caveat,
    list_runs,
    read_margins,
    read_p,
    read_result,
    read_rows,
    read_run,
    summarise,
)
from reweigh.lab.record.rows import History, Margins, current_names

__all__ = [
    "Header",
    "History",
    "Margins",
    "Record",
    "RecordError",
    "Summary",
    "Unpacked",
    "caveat",
    "current_names",
    "environment",
    "list_runs",
    "pack",
    "read_header",
    "read_margins",
    "read_p",
    "read_result",
    "read_rows",
    "read_run",
    "summarise",
    "unpack",
]

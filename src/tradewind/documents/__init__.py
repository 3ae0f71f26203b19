"""Reading and writing the files that people name: bounded, and refused with a reason instead of a traceback.

Needs nothing but errors. `reading` for files, stdin and folders; `writing` for what commands leave behind.
"""

from tradewind.documents.reading import (
    MAX_DOCUMENT_BYTES,
    MAX_LINE_BYTES,
    STDIN,
    bounded_lines,
    existing,
    list_folder,
    must_be_file,
    open_file,
    read_bytes,
    read_document,
    read_stdin,
    short_name,
    stdin_bytes,
    unreadable,
)
from tradewind.documents.writing import write_file

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "MAX_LINE_BYTES",
    "STDIN",
    "bounded_lines",
    "existing",
    "list_folder",
    "must_be_file",
    "open_file",
    "read_bytes",
    "read_document",
    "read_stdin",
    "short_name",
    "stdin_bytes",
    "unreadable",
    "write_file",
]

"""What the Kafka client's own library says of its properties: each name, and of which one it is an alias."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

import confluent_kafka

__all__ = ["properties"]

_ALIAS = re.compile(r"Alias for `([^`]+)`")


@cache
def properties() -> dict[str, str | None]:
    """Return every property of the library that the Python client brings, with what it is an alias of."""
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    (file,) = folder.glob("librdkafka*")
    found: dict[str, str | None] = {}
    for line in _shown(file).splitlines():
        cells = [cell.strip() for cell in line.split(" | ")]
        if len(cells) > 3 and re.fullmatch(r"[a-z0-9_.]+", cells[0]):
            alias = _ALIAS.search(line)
            found[cells[0]] = alias[1] if alias else found.get(cells[0])
    return found


def _shown(file: Path) -> str:
    libc, library = ctypes.CDLL(None), ctypes.CDLL(str(file))
    libc.open_memstream.restype = ctypes.c_void_p
    text, size = ctypes.c_char_p(), ctypes.c_size_t()
    stream = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    library.rd_kafka_conf_properties_show(stream)
    libc.fclose(stream)
    return (text.value or b"").decode()

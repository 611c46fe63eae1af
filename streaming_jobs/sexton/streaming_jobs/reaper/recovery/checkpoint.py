"""Spark's checkpoint as the reaper reads it, and the reaper's own files beside Spark's."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sexton.schemas.errors import InvalidSettings
from sexton.schemas.masking import masked
from sexton.streaming_jobs.reaper.recovery.binding import (
    BINDING,
    HINT_DAMAGED,
    Binding,
    CheckpointRefused,
    damaged,
)
from sexton.streaming_jobs.reaper.recovery.catch_up import CATCH_UP

__all__ = [
    "Checkpoint",
    "local_identity",
    "parse_offsets",
]

_METADATA = "metadata"
_IDENTITY = "sexton-id"
_WAITING = "sexton-waiting"
_WAITING_BEGUN = "sexton-waiting-begun"
_KEPT = 10
_ID_LENGTH = 32  # of a UUID in hexadecimal digits
_READS = 20
_READ_AGAIN_S = 0.1
_BAD_CHECKSUM = "ChecksumException"
_CONDITIONAL = "fs.option.create.conditional.overwrite"
_SHORTEST = len("v1\n{}")
_SPARKS = ("commits", "offsets", "sources", "state", "lost+found")  # Spark's, and a new volume's own
_STARTED = "sources/0/0"  # where the first micro-batch starts


_HINT_SCHEME = (
    "a path without a scheme is local; for s3a and others Spark needs a package: docs/operating.md,"
    " 'A checkpoint on S3'"
)


def _java_message(error: Py4JJavaError) -> str:
    return str(error.java_exception.toString()).partition("\n")[0]


def parse_offsets(text: str, topic: str, name: str = "offsets") -> dict[int, int]:
    """Return the offsets by partition in one of Spark's offset files; raises CheckpointRefused."""
    try:
        raw = json.loads(text.rstrip("\n").rpartition("\n")[2])
        return {int(partition): int(offset) for partition, offset in raw[topic].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(name, f"no offsets of {topic} in it: {type(error).__name__}: {error}") from error


def check_log_file(text: str, name: str) -> None:
    """Raise CheckpointRefused unless one of Spark's files is whole: its version, then lines of JSON."""
    version, *lines = text.lstrip("\0").rstrip("\n").split("\n")
    if not version.startswith("v") or not lines:
        raise damaged(name, "it is cut or empty" if len(text) < _SHORTEST else "it is no file of Spark's")
    try:
        for line in lines:
            json.loads(line)
    except ValueError as error:
        raise damaged(name, f"it is cut, or no JSON: {error}") from error


def local_identity(path: str) -> str | None:
    """Return the id of a checkpoint in a local folder as it stands there, without Spark.

    None where there is none yet, or another file system has it: then `Checkpoint.identity` knows it.
    """
    scheme, colon, rest = path.partition(":")
    if colon and "/" not in scheme and scheme != "file":
        return None
    folder = Path("/" + rest.lstrip("/") if scheme == "file" and colon else path)
    try:
        text = (folder / _IDENTITY).read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    return text if len(text) == _ID_LENGTH else None


class Checkpoint:
    """The checkpoint's folder, on any file system that Spark can write."""

    def __init__(self, spark: SparkSession, path: str, topic: str) -> None:
        self._topic = topic
        self._name = masked(path)
        jvm: Any = spark._jvm
        self._jvm = jvm
        try:
            self._root = jvm.org.apache.hadoop.fs.Path(path)
            self._fs = self._root.getFileSystem(spark._jsc.hadoopConfiguration())
        except Py4JJavaError as error:
            raise InvalidSettings(
                f"Spark cannot open the checkpoint: {self._name}: {_java_message(error)}", hint=_HINT_SCHEME
            ) from error

    def identity(self) -> str:
        """Return the id that the checkpoint has had since its first use, however its path is spelled.

        Two paths may lead to one folder: a link, another mount, a slash more. Raises CheckpointRefused.
        """
        refused: Py4JJavaError | None = None
        try:
            if self._read(_IDENTITY) is None:
                self._check_nobody_elses()
                self._write(self._path(_IDENTITY), uuid.uuid4().hex, overwrite=False)
        except Py4JJavaError as error:
            refused = error  # unless another reaper made it at this moment
        for _ in range(_READS):
            text = self._read(_IDENTITY) if refused is None or self._is_there(_IDENTITY) else None
            if text is None and refused is not None:
                raise InvalidSettings(
                    f"the checkpoint cannot be read and written: {self._name}: {_java_message(refused)}",
                    hint="set SEXTON_CHECKPOINT to a path that Spark can write",
                ) from refused
            if text is not None and len(text) == _ID_LENGTH:
                return text
            time.sleep(_READ_AGAIN_S)  # it is being written
        raise damaged(_IDENTITY, "it is no id")

    def _check_nobody_elses(self) -> None:
        """Raise CheckpointRefused for a folder in which somebody else's files are: it is none of ours."""
        found = self._fs.listStatus(self._root) if self._fs.exists(self._root) else []
        names = sorted(str(status.getPath().getName()) for status in found)
        ours = (BINDING, CATCH_UP, _METADATA, _WAITING, _WAITING_BEGUN, *_SPARKS)
        others = [name for name in names if name not in ours and not name.startswith(".")]
        if others:
            raise CheckpointRefused(
                f"the folder is no checkpoint, and not empty: {self._name}: {others[0]}",
                hint="SEXTON_CHECKPOINT names a checkpoint, or a folder that is empty or not there yet",
            )

    def binding(self) -> Binding | None:
        """Return what the checkpoint is bound to, None for a new one; raises CheckpointRefused."""
        text = self._read(BINDING)
        if text is not None:
            return Binding.parse(text)
        if self._list("offsets"):
            raise CheckpointRefused(
                f"the checkpoint is in use and not bound to a topic: {BINDING} is missing", hint=HINT_DAMAGED
            )
        return None

    def bind(self, binding: Binding) -> None:
        """Bind a new checkpoint, before Spark writes anything into it."""
        self._write(self._path(BINDING), binding.to_text(), overwrite=False)

    def catch_up(self) -> str | None:
        """Return the text about what another checkpoint has processed, None of a checkpoint without one."""
        return self._read(CATCH_UP)

    def begin_catch_up(self, text: str) -> None:
        """Write that text into a new checkpoint, before it is bound: one that is bound has it."""
        self._write(self._path(CATCH_UP), text, overwrite=True)

    def check_whole(self) -> None:
        """Return when each file of Spark's is there and whole that it reads at a start, and we do.

        Raises CheckpointRefused that names the file. Spark itself would begin anew without some of them, and
        end with an error of its own about others.
        """
        begun, commits = self._list("offsets"), self._list("commits")
        if not begun and not commits:
            # Ended before the first micro-batch: Spark has written these, one of them, or none.
            for name in (_METADATA, _STARTED):
                if (text := self._read(name)) is not None:
                    self._check_file(name, text)
            return
        newest = max([*begun, *commits])
        names = [_METADATA, _STARTED, *(f"offsets/{n}" for n in (newest - 1, newest) if n >= 0)]
        if commits or newest > 0:
            names.append(f"commits/{newest if newest in commits else newest - 1}")
        for name in names:
            text = self._read(name)
            if text is None:
                raise damaged(name, "it is missing")
            self._check_file(name, text)

    def _check_file(self, name: str, text: str) -> None:
        if name == _METADATA:
            try:
                if not json.loads(text)["id"]:
                    raise ValueError("no id in it")
            except (ValueError, KeyError, TypeError) as error:
                raise damaged(name, f"it is cut, or no JSON: {error!r}") from error
            return
        check_log_file(text, name)
        if not name.startswith("commits/"):
            parse_offsets(text, self._topic, name)

    def committed(self) -> dict[int, int]:
        """Return the offsets up to which everything is settled; empty before the first commit."""
        commits = self._list("commits")
        if commits:
            return self._offsets(f"offsets/{max(commits)}")
        return self._offsets(_STARTED) if self._list("offsets") else {}

    def planned(self) -> tuple[dict[int, int], float] | None:
        """Return where the micro-batch ends that was begun and not committed, and when it was begun.

        The time is in seconds since 1970; None when everything that was begun is committed.
        """
        begun, commits = self._list("offsets"), self._list("commits")
        if not begun or (commits and max(commits) >= max(begun)):
            return None
        name = f"offsets/{max(begun)}"
        found = self._offsets(name)
        status = self._fs.getFileStatus(self._path(name))
        return found, status.getModificationTime() / 1000

    def _offsets(self, name: str) -> dict[int, int]:
        text = self._read(name)
        if text is None:
            raise damaged(name, "it is missing")
        return parse_offsets(text, self._topic, name)

    def waiting(self) -> str | None:
        """Return the newest text about the delay queue, None before the first one."""
        return self._newest(_WAITING)

    def commit_waiting(self, text: str) -> None:
        """Write the next text about the delay queue; the last few before it are kept."""
        self._append(_WAITING, text)

    def waiting_begun(self) -> str | None:
        """Return the newest text about what of the delay queue was begun, None before the first one."""
        return self._newest(_WAITING_BEGUN)

    def begin_waiting(self, text: str) -> None:
        """Write down what is about to be processed; without it a crash leaves no trace of what was sent."""
        self._append(_WAITING_BEGUN, text)

    def _newest(self, folder: str) -> str | None:
        numbers = self._list(folder)
        return self._read(f"{folder}/{max(numbers)}") if numbers else None

    def _append(self, folder: str, text: str) -> None:
        numbers = self._list(folder)
        number = max(numbers, default=-1) + 1
        # Written under another name first: a text that was cut by a crash is never the newest one.
        draft = self._path(f"{folder}/draft")
        self._write(draft, text, overwrite=True)
        if not self._fs.rename(draft, self._path(f"{folder}/{number}")):
            raise CheckpointRefused(f"the checkpoint cannot be written: {folder}/{number}", hint=HINT_DAMAGED)
        for old in sorted(numbers)[:-_KEPT]:
            self._fs.delete(self._path(f"{folder}/{old}"), False)

    def _list(self, folder: str) -> list[int]:
        path = self._jvm.org.apache.hadoop.fs.Path(self._root, folder)
        if not self._fs.exists(path):
            return []
        names = (status.getPath().getName() for status in self._fs.listStatus(path))
        return [int(name) for name in names if name.isdigit()]

    def _is_there(self, name: str) -> bool:
        try:
            return bool(self._fs.exists(self._path(name)))
        except Py4JJavaError:
            return False

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def _write(self, path: Any, text: str, *, overwrite: bool) -> None:
        builder = self._fs.createFile(path).recursive().overwrite(overwrite)
        if not overwrite:
            # On an object store the look and the write are two requests, and two reapers could each believe
            # that theirs was the first: then each has a lock of its own. Others refuse by themselves.
            builder = builder.opt(_CONDITIONAL, True)
        out = builder.build()
        try:
            out.write(bytearray(text.encode()))
        finally:
            out.close()

    def _read(self, name: str) -> str | None:
        """Return a file's text, None where there is none; raises CheckpointRefused if it was changed."""
        path = self._jvm.org.apache.hadoop.fs.Path(self._root, name)
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != _BAD_CHECKSUM:
                raise
            # A local file system keeps a sum beside each file: it was changed by something else than Spark.
            raise damaged(name, f"it was changed or cut: {_java_message(error)}") from error
        finally:
            stream.close()

"""What executors on a cluster need, as a folder that `sexton deploy pack` makes and the driver hands out."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from sexton.schemas.errors import InvalidSettings

__all__ = ["ARCHIVE", "PYTHON", "Made", "Pack", "check_path", "file_uris", "here", "is_pack", "open_pack"]

ARCHIVE = "environment"
"""The name under which Spark unpacks the archive in the working folder of an executor."""

PYTHON = f"./{ARCHIVE}/bin/python"
"""The Python of the archive, as a worker finds it."""

_NOTE = "pack.json"
_OF_PATTERNS = ",*?[]{}\\"
_AGAIN = "make it anew with the versions of this machine: sexton deploy pack"


@dataclass(frozen=True, slots=True)
class Made:
    """The versions that a pack was made with: those of the driver have to be the same.

    `python` is major and minor version, which Spark compares too.
    """

    sexton: str
    python: str
    spark: str


@dataclass(frozen=True, slots=True)
class Pack:
    """A folder with an archive of packages and Sexton, Sexton alone as a zip, and the connector's jars."""

    folder: Path
    made: Made

    @property
    def archive(self) -> Path:
        """A virtual environment, for `spark.archives`."""
        return self.folder / f"{ARCHIVE}.tar.gz"

    @property
    def code(self) -> Path:
        """Sexton without the packages that it imports, for `spark.submit.pyFiles`."""
        return self.folder / f"sexton-{self.made.sexton}.zip"

    @property
    def jars(self) -> list[Path]:
        """Spark's Kafka connector, for `spark.jars`."""
        return sorted((self.folder / "jars").glob("*.jar"))

    def spark_options(self, more_jars: Sequence[Path] = ()) -> dict[str, str]:
        """Return the settings of Spark by which executors get the pack, with more jars, and use it."""
        return {
            "spark.archives": f"{file_uris([self.archive])}#{ARCHIVE}",
            "spark.jars": file_uris([*self.jars, *more_jars]),
            "spark.pyspark.python": PYTHON,
        }

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file that is there, by its path in the folder."""
        there = [path for path in (self.archive, self.code, *self.jars) if path.is_file()]
        return {path.relative_to(self.folder).as_posix(): path.stat().st_size for path in there}

    def note(self) -> None:
        """Write down what the pack was made with and holds, as its last file: without it a folder is none."""
        text = json.dumps({"made_with": asdict(self.made), "bytes": self.sizes}, indent=2)
        (self.folder / _NOTE).write_text(f"{text}\n", encoding="utf-8")


def check_path(folder: Path) -> None:
    """Raise InvalidSettings for a folder whose files Spark can be told of by no spelling.

    It looks up each file of a list as a pattern, and makes one list of what it has found, with commas.
    """
    if found := [sign for sign in _OF_PATTERNS if sign in str(folder.absolute())]:
        raise InvalidSettings(
            f"Spark takes no pack from a path with {' '.join(found)} in it: {folder}",
            hint="`sexton deploy pack --to` names another folder",
        )


def file_uris(paths: Iterable[Path]) -> str:
    """Return a list of files as Spark reads it: a blank or a # in a path means something else."""
    return ",".join(path.absolute().as_uri() for path in paths)


def here() -> Made:
    """Return the versions of this process."""
    return Made(version("sexton"), ".".join(platform.python_version_tuple()[:2]), version("pyspark"))


def is_pack(folder: Path) -> bool:
    """Return whether a folder says that it is a pack, of whatever versions."""
    return (folder / _NOTE).is_file()


def open_pack(folder: Path) -> Pack:
    """Return the pack in a folder; raises InvalidSettings when there is none, or one of other versions."""
    check_path(folder.resolve())
    try:
        noted = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        made, sizes = Made(**noted["made_with"]), dict(noted["bytes"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InvalidSettings(
            f"SEXTON_SPARK_PACK is no folder made by `sexton deploy pack`: {folder}: {error}",
            hint="`sexton deploy pack` makes one and prints its path",
        ) from error
    for name, ours in asdict(here()).items():
        if (found := getattr(made, name)) != ours:
            raise InvalidSettings(f"the pack has {name} {found}, the driver {ours}: {folder}", hint=_AGAIN)
    pack = Pack(folder.resolve(), made)
    there = pack.sizes
    if other := sorted(name for name in {*sizes, *there} if sizes.get(name) != there.get(name)):
        raise InvalidSettings(
            f"the pack is not whole, absent or of another size: {', '.join(other)}: {folder}", hint=_AGAIN
        )
    return pack

"""`sexton deploy pack`: what is in a pack, and which one a driver takes."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest

from sexton.deploy.main import run
from sexton.deploy.pack import make, requirements, write_code
from sexton.deploy.pack_commands import submit_command
from sexton.schemas.errors import InvalidSettings, ToolMissing, UsageError
from sexton.streaming_jobs.pack import PYTHON, Pack, here, open_pack

BASE = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
SPARK = [str(path) for path in (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")]
# What a task imports at once, and what it imports later, when it first needs it.
IMPORTED = (
    "sexton.streaming_jobs.worker_daemon",
    "sexton.streaming_jobs.reaper.executors",
    "sexton.streaming_jobs.collectors.spark",
    "sexton.streaming_jobs.budget.shared",
    "sexton.schemas.registry",
    "confluent_kafka.schema_registry",
    "botocore.credentials",
)


def executed(python: Path, code: str, *path: str) -> str:
    """What a Python prints that has nothing but this path, and no variable that could help it."""
    done = subprocess.run(
        [python, "-c", code],
        env={"PYTHONPATH": os.pathsep.join(path)} if path else {},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def made(tmp_path: Path) -> Pack:
    """A pack with everything but its contents."""
    pack = Pack(tmp_path, here())
    (tmp_path / "jars").mkdir()
    for path in (pack.archive, pack.code, tmp_path / "jars" / "connector.jar"):
        path.touch()
    pack.note()
    return pack


@pytest.mark.real
@pytest.mark.faults
def test_d_1_the_archive_has_all_that_executors_import_but_spark(pack: Pack, tmp_path: Path) -> None:
    """Unpacked elsewhere, with Spark's own Python beside it; by itself there is no pyspark in it."""
    with tarfile.open(pack.archive) as archive:
        archive.extractall(tmp_path / "environment", filter="tar")
    python = tmp_path / PYTHON
    imports = "; ".join(f"import {name}" for name in IMPORTED)

    found = executed(python, f"{imports}; import sexton.schemas as s; print(s.__file__)", *SPARK)
    absent = executed(python, "from importlib.util import find_spec; print(find_spec('pyspark'))")
    version = executed(python, "from importlib.metadata import version; print(version('sexton'))")

    assert found.startswith(str(tmp_path))
    assert absent == "None"
    assert version == pack.made.sexton
    assert open_pack(pack.folder) == pack


def test_sexton_is_imported_from_the_zip(tmp_path: Path) -> None:
    """From every part, with its data files and its version, by a Python that has no Sexton."""
    write_code(tmp_path / "sexton.zip")
    code = (
        "import importlib.util as u, importlib.resources as r, importlib.metadata as m;"
        "parts = 'schemas storage issuer producers streaming_jobs consumers deploy'.split();"
        "print(all(u.find_spec('sexton.' + part) for part in parts),"
        " (r.files('sexton.streaming_jobs.budget') / 'lua' / 'budget_v1.lua').is_file(),"
        " m.version('sexton'))"
    )

    assert executed(BASE, code, str(tmp_path / "sexton.zip")) == f"True True {here().sexton}"
    names = zipfile.ZipFile(tmp_path / "sexton.zip").namelist()
    assert "sexton/" in names  # else the zip has no root of the namespace
    assert not [name for name in names if "__pycache__" in name]


def test_what_is_packed_is_the_extra_without_spark() -> None:
    """The packages that the metadata name for executors, and none of Spark's or of the command's."""
    names = {line.partition(">")[0].partition("[")[0] for line in requirements()}

    assert {"botocore", "pyarrow", "redis", "confluent-kafka", "fastavro", "httpx"} <= names
    assert not names & {"pyspark", "pandas", "typer", "fastapi", "boto3"}


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (["--python", "python3"], "error: not a path from the root: python3\n\nhint: --python is"),
        (["--python", "/bin/false"], "error: not a Python that starts: /bin/false\n\nhint: --python names"),
    ],
)
def test_bad_input_is_told_before_anything_is_made(
    options: list[str], reported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 with what is wrong and what to do; no folder is made."""
    assert run(["deploy", "pack", "--to", str(tmp_path / "new"), *options]) == 2
    assert reported in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be removed for the pack: told before anything is made."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)  # what comes next would end here

    with pytest.raises(UsageError, match="the folder holds something else than a pack"):
        make(tmp_path, BASE, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    with pytest.raises(ToolMissing, match="is made from a virtual environment"):
        make(tmp_path / "new", BASE, tmp_path)


@pytest.mark.parametrize("sign", [*",*?[]{}", "\\"])
def test_a_folder_that_spark_cannot_be_told_of_is_refused(sign: str, tmp_path: Path) -> None:
    """Before anything is made, and before Spark looks up what it takes for a pattern."""
    folder = tmp_path / f"pack{sign}1"
    with pytest.raises(InvalidSettings, match=re.escape(f"from a path with {sign} in it")):
        make(folder, BASE, tmp_path)
    with pytest.raises(InvalidSettings, match=re.escape(f"from a path with {sign} in it")):
        open_pack(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 with what to do, and no internal error."""
    (tmp_path / "file").touch()

    assert run(["deploy", "pack", "--to", str(tmp_path / "file" / "new")]) == 2
    reported = capsys.readouterr().err
    assert "the pack cannot be made there" in reported
    assert "hint: --to names a folder that this user can make" in reported


def test_a_python_of_another_version_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that this machine has is asked."""
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.9\n")
    other.chmod(0o755)

    assert run(["deploy", "pack", "--to", str(tmp_path / "new"), "--python", str(other)]) == 2
    assert f"is Python 3.9, the driver's is {platform.python_version()}" in capsys.readouterr().err

    assert run(["deploy", "pack", "--to", str(tmp_path / "new"), "--python", "/bin/true"]) == 2
    assert "not a Python that starts: /bin/true" in capsys.readouterr().err


@pytest.mark.parametrize("field", ["sexton", "python", "spark"])
def test_a_pack_of_other_versions_is_refused(made: Pack, field: str) -> None:
    """Executors would run another Sexton, another Python or another Spark than the driver."""
    Pack(made.folder, replace(made.made, **{field: "0.0"})).note()

    with pytest.raises(InvalidSettings, match=f"the pack has {field} 0.0, the driver ") as refused:
        open_pack(made.folder)
    assert refused.value.hint is not None
    assert "sexton deploy pack" in refused.value.hint


@pytest.mark.parametrize("name", ["environment.tar.gz", "sexton-{}.zip", "jars/connector.jar"])
@pytest.mark.parametrize("harm", [Path.unlink, Path.touch, lambda path: path.write_bytes(b"cut o")])
def test_a_pack_that_is_not_whole_is_refused(made: Pack, name: str, harm: Callable[[Path], object]) -> None:
    """A file that is absent, empty or cut: executors would end with an error that names no cause."""
    name = name.format(made.made.sexton)
    path = made.folder / name
    path.write_bytes(b"cut off")
    made.note()
    assert open_pack(made.folder) == made
    path.unlink()
    if harm is not Path.unlink:
        harm(path)

    with pytest.raises(InvalidSettings, match=f"not whole, absent or of another size: {re.escape(name)}: "):
        open_pack(made.folder)


def test_a_pack_with_a_jar_too_many_is_refused(made: Pack) -> None:
    """One that somebody has put there, or left from another version."""
    (made.folder / "jars" / "another.jar").touch()

    with pytest.raises(InvalidSettings, match=r"of another size: jars/another\.jar: "):
        open_pack(made.folder)


@pytest.mark.parametrize("note", [{"sexton": "1"}, {"made_with": {"sexton": "1"}, "bytes": {}}, [], 7])
def test_a_folder_that_is_no_pack_is_refused(made: Pack, note: object) -> None:
    """Without its last file, or with another one of that name."""
    with pytest.raises(InvalidSettings, match="is no folder made by `sexton deploy pack`"):
        open_pack(made.folder / "nowhere")
    (made.folder / "pack.json").write_text(json.dumps(note))
    with pytest.raises(InvalidSettings, match="is no folder made by `sexton deploy pack`"):
        open_pack(made.folder)


def test_an_unfit_pack_is_told_before_kafka_is_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers are away, which takes long to find out."""
    monkeypatch.setattr("sexton.schemas.kafka.admin.reach", lambda settings: pytest.fail("Kafka was asked"))
    given = ["--master", "spark://127.0.0.1:1", "--pack", str(tmp_path / "nowhere")]

    assert run(["reaper", "run", "--once", *given]) == 2
    assert "is no folder made by `sexton deploy pack`" in capsys.readouterr().err


def test_the_command_that_is_printed_hands_out_the_pack(made: Pack) -> None:
    """Archive, jars, the workers' Python, which is the archive's, and the driver's, which is this one."""
    command = submit_command(made)

    assert f"spark.archives={made.archive.as_uri()}#environment" in command
    assert f"spark.jars={made.jars[0].as_uri()}" in command
    assert "spark.pyspark.python=./environment/bin/python" in command
    assert f"spark.pyspark.driver.python={sys.executable}" in command
    assert command[-1].endswith("submit.py")


def test_the_command_names_the_master_before_the_script(made: Pack) -> None:
    """What stands after the script is the reaper's: a master there would not be spark-submit's."""
    command = submit_command(made, "spark://HOST:7077")

    assert command[1:3] == ["--master", "spark://HOST:7077"]
    assert command[3:] == submit_command(made)[1:]

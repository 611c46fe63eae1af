"""Spark's session as a process of ours opens it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from sexton.deploy import java
from sexton.schemas import settings
from sexton.streaming_jobs import spark

_OPENS = """
import sys
from pathlib import Path
from sexton.schemas import settings
from sexton.streaming_jobs import spark

spark._LOG_CONFIG = Path(sys.argv[1])
session = spark.open_session(settings.load(), "test", class_options=[f"-Dsexton.archive={sys.argv[2]}"])
print(session._jvm.java.lang.System.getProperty("sexton.archive"))
session._jvm.org.slf4j.LoggerFactory.getLogger("test").error("written")
"""


@pytest.mark.spark
@pytest.mark.slow
def test_paths_with_a_space_reach_the_jvm_whole(tmp_path: Path) -> None:
    """Spark, its log's configuration and the archive lie under names that a shell would take apart."""
    folder = tmp_path / "a checkout, 'new' \"one\" \\ of two"
    folder.mkdir()
    (folder / "spark").symlink_to(Path(pyspark.__file__).parent, target_is_directory=True)
    shutil.copy(spark._LOG_CONFIG, folder)
    log_config = folder / spark._LOG_CONFIG.name
    log_config.write_text(log_config.read_text().replace(" spark ", " of this folder "))
    env = {"JAVA_HOME": str(java.find(settings.load().cache_dir.expanduser()).home)}

    done = subprocess.run(
        [sys.executable, "-c", _OPENS, log_config, folder / "classes.jsa"],
        env={**os.environ, **env, "SPARK_HOME": str(folder / "spark")},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(folder / "classes.jsa")
    assert "of this folder ERROR test: written" in done.stderr

"""A `java` and a Spark for the tests, whose short lives cost a third of the CPU.

`use` makes `target/quick-java`, a JAVA_HOME that is a real one but for `bin/java`. That is a script
that leaves out the second compiler and the verification of classes, and maps an archive of classes
where there is one (class-data sharing, JEP 350). A test's Spark or Kafka lives for seconds, and
these cost more than its work.

Its directory `spark` is a SPARK_HOME that is the installed one but for `python/lib`. There, PySpark
is the installed package instead of a zip file. Python keeps no compiled code of modules in a zip
file, so each Python process that Spark starts would compile PySpark: 0.6 of its 0.9 seconds of CPU.

    python -m support.quick_java        makes the archives, some 270 MB; `make test` does it

An archive belongs to one class path on one JDK. The JVM passes over an archive that does not fit.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from harnesses.peers.jars import NODE_4_2, NODE_4_4, JarSet

ROOT: Final = Path(__file__).resolve().parents[2]
PLACE: Final = ROOT / "target" / "quick-java"
SPARK: Final = "spark"
"""The SPARK_HOME below a JAVA_HOME."""

NODES: Final = (NODE_4_2, NODE_4_4)

FLAGS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
SILENT: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""The JVM warns of an archive that does not fit on standard output, which tests read."""

SCRIPT: Final = """\
#!/bin/sh
# Made by tests/support/quick_java.py.
case "$*" in
  *org.apache.spark.launcher.Main*) archive= ;;
  *org.apache.spark.*) archive='{place}/spark.jsa' ;;
{kafka}  *) archive= ;;
esac
[ -f "$archive" ] && set -- -XX:SharedArchiveFile="$archive" {silent} "$@"
exec '{java}' {flags} "$@"
"""


def use() -> None:
    """Point JAVA_HOME and SPARK_HOME to the quick ones, made if need be.

    Without a `java` nothing changes.
    """
    real = _real_home()
    if real is not None:
        home = _home(real)
        os.environ["JAVA_HOME"] = str(home)
        os.environ["SPARK_HOME"] = str(home / SPARK)


def main() -> None:
    """Make the archives that are missing."""
    use()
    place = os.environ.get("JAVA_HOME")
    if place is None:
        return
    trained: dict[str, Callable[[str], None]] = {"spark": _train_spark}
    trained |= {each.name: partial(_train_kafka, each) for each in NODES}
    for name, train in trained.items():
        archive = Path(place) / f"{name}.jsa"
        if not archive.exists():
            print(
                f"making an archive of the classes of {name}, so that JVMs of tests start quickly"
            )
            made = archive.with_name(f"{name}.{os.getpid()}")
            train(f"-XX:ArchiveClassesAtExit={made}")
            made.replace(archive)


def _real_home() -> Path | None:
    """The JDK that a program would use, where that is not the quick one already."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None or PLACE in Path(java).parents:
        return None
    return Path(java).resolve().parents[1]


def _home(real: Path) -> Path:
    """The quick JAVA_HOME of a real one; it appears whole or not at all."""
    spark = _installed("pyspark")
    origins = (real, (real / "release").read_text(), spark, version("pyspark"))
    key = repr((*origins, SCRIPT, FLAGS, NODES))
    place = PLACE / hashlib.sha256(key.encode()).hexdigest()[:12]
    if not place.exists():
        PLACE.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=PLACE))
        (made / "bin").mkdir()
        for each in [*real.iterdir(), *(real / "bin").iterdir()]:
            if each not in (real / "bin", real / "bin" / "java"):
                (made / each.relative_to(real)).symlink_to(each)
        java = made / "bin" / "java"
        names = (each.name for each in NODES)
        cases = "".join(f"  *'/{name}/*'*) archive='{place}/{name}.jsa' ;;\n" for name in names)
        words = {"place": place, "java": real / "bin" / "java", "kafka": cases}
        java.write_text(SCRIPT.format(**words, flags=" ".join(FLAGS), silent=" ".join(SILENT)))
        java.chmod(0o755)
        _make_spark_home(made / SPARK, spark)
        with suppress(OSError):  # another process was faster
            made.rename(place)
    return place


def _make_spark_home(home: Path, installed: Path) -> None:
    library = home / "python" / "lib"
    library.mkdir(parents=True)
    for each in installed.iterdir():
        if each.name != "python":
            (home / each.name).symlink_to(each)
    for archive in (installed / "python" / "lib").iterdir():
        package = archive.name.partition("-")[0].removesuffix(".zip")
        (library / archive.name).mkdir()
        (library / archive.name / package).symlink_to(_installed(package))


def _installed(package: str) -> Path:
    """Directory of an installed package, which is not imported."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _train_spark(flag: str) -> None:
    command = [sys.executable, "-c", SPARK_PROGRAM, flag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the program for Spark's archive failed:\n{done.stderr[-4000:]}")


SPARK_PROGRAM: Final = """
import sys
import pandas
from spark.sessions import session

spark = session({"spark.driver.extraJavaOptions": sys.argv[1]}, log_level="OFF")
rows = spark.range(100).selectExpr("id", "id % 7 as k", "cast(id as string) s")
rows.groupBy("k").count().join(rows, "k").orderBy("id").collect()
frame = spark.createDataFrame([(1, "a")], "n int, s string")
frame.mapInPandas(lambda each: each, "n int, s string").collect()
spark.sql("create temporary view v as select 1 a")
spark.sql("select a, count(*) from v group by a").collect()
query = (
    spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    .groupBy("value").count().writeStream.outputMode("update")
    .foreachBatch(lambda frame, batch: frame.collect())
    .trigger(processingTime="100 milliseconds").start()
)
query.awaitTermination(4)
query.stop()
spark.stop()
"""


def _train_kafka(jars: JarSet, flag: str) -> None:
    from harnesses.peers.kafka import KafkaNode

    class Node(KafkaNode):
        flags: tuple[str, ...] = ()

        def _java(self, *options: str) -> list[str]:
            java, *rest = super()._java(*options)
            return [java, *self.flags, *rest]

    with tempfile.TemporaryDirectory() as directory:
        node = Node(Path(directory), jars=jars)
        node.start()  # it formats its directory by another JVM
        node.stop()
        node.flags = (flag,)
        node.start()
        node.stop()


if __name__ == "__main__":
    main()

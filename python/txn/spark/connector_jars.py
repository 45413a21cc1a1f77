"""The jars of Spark's own Kafka connector, to compare with it or to use it beside txn.

`spark.jars.packages` also asks for jars that PySpark has already, and fails where one
artifact is missing from a mirror. So exactly the four missing jars are fetched, by the Ivy that
comes with PySpark or by `mvn`, and checked against the SHA-256 known here. They are kept in
`~/.cache/txn/spark-4.2` (`TXN_CACHE` names another place).

The token provider is of a preview: its release of 4.2.0 is not everywhere. Only its classes have to
be there unless delegation tokens are used.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from txn.errors import ConfigError, RetriableError

FETCH_S_MAX: Final = 600.0

SPARK: Final = "4.2"


class JarsUnavailableError(RetriableError):
    """The jars could not be fetched; the message lists the attempts."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar by its Maven coordinates."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Its file name."""
        return f"{self.name}-{self.version}.jar"


JARS: Final = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.1.0-preview1",
        "ab6e27a8a47ce63348dd0ecbd5543dc6212b4783180305cde5749e79684ea97b",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.2",
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)


def jars() -> list[str]:
    """Return the paths for `spark.jars`; download jars that are not in the cache.

    `.config("spark.jars", ",".join(txn.spark.jars()))` passes them to a session.

    Raises:
        ConfigError: these jars belong to another Spark than the installed one.
        JarsUnavailableError: they could not be fetched, or their checksum is wrong.
    """
    installed = version("pyspark")
    if not installed.startswith(f"{SPARK}."):
        raise ConfigError(
            f"PySpark {installed} is installed; the connector known here is that of {SPARK}. For a "
            f"comparison: pip install 'pyspark=={SPARK}.*'. format(\"txn\") needs no connector"
        )
    cache = Path(os.environ.get("TXN_CACHE") or Path.home() / ".cache" / "txn")
    place = cache / f"spark-{SPARK}"
    place.mkdir(parents=True, exist_ok=True)
    with _locked(place / ".lock"):
        missing = [jar for jar in JARS if not _has_right_checksum(place / jar.file, jar)]
        if missing:
            _fetch(place, missing)
    return [str(place / jar.file) for jar in JARS]


def _fetch(place: Path, missing: Sequence[Jar]) -> None:
    # Beside their place, since a rename must not cross file systems.
    work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=place))
    try:
        failures = []
        for command in filter(None, (_ivy(work, missing), _maven(work, missing))):
            done = _run(command)
            wrong = [jar for jar in missing if not _has_right_checksum(work / jar.file, jar)]
            if not wrong:
                for jar in missing:
                    (work / jar.file).rename(place / jar.file)
                return
            failures.append(_story(command[0], wrong, work, done))
        raise JarsUnavailableError(
            "Spark's Kafka connector could not be fetched. "
            + ("\n".join(failures) or "There is neither java, for PySpark's Ivy, nor mvn")
            + f"\nCheck the network, or put these files into {place}: "
            + ", ".join(jar.file for jar in missing)
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {FETCH_S_MAX:.0f} s"
    tail = (done.stdout + done.stderr).splitlines()[-10:]
    return f"exit code {done.returncode}\n" + "\n".join(tail)


def _story(tool: str, wrong: Sequence[Jar], work: Path, done: str) -> str:
    states = ", ".join(
        f"{jar.file} {'has another checksum' if (work / jar.file).exists() else 'is missing'}"
        for jar in wrong
    )
    return f"After {Path(tool).name}: {states}; {done}"


def _ivy(work: Path, missing: Sequence[Jar]) -> list[str] | None:
    java = _java()
    pyspark = find_spec("pyspark")
    if java is None or pyspark is None or pyspark.origin is None:
        return None
    jars = sorted((Path(pyspark.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        return None
    settings = work / "ivy.xml"
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.name}" rev="{jar.version}" '
        'transitive="false" conf="default-&gt;master"/>'
        for jar in missing
    )
    settings.write_text(
        '<ivy-module version="2.0"><info organisation="txn" module="connector"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    return [
        *(java, "-jar", str(jars[-1]), "-cache", str(work / "ivy"), "-ivy", str(settings)),
        *("-types", "jar", "bundle", "-retrieve", f"{work}/[artifact]-[revision].[ext]", "-warn"),
    ]


def _maven(work: Path, missing: Sequence[Jar]) -> list[str] | None:
    maven = shutil.which("mvn")
    if maven is None:
        return None
    pom = work / "pom.xml"
    dependencies = "".join(
        f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.name}</artifactId>"
        f"<version>{jar.version}</version><exclusions><exclusion><groupId>*</groupId>"
        "<artifactId>*</artifactId></exclusion></exclusions></dependency>"
        for jar in missing
    )
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>txn</groupId><artifactId>connector</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )
    return [
        *(maven, "-q", "-B", "-f", str(pom)),
        *("dependency:copy-dependencies", f"-DoutputDirectory={work}"),
    ]


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def _has_right_checksum(path: Path, jar: Jar) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256
    except FileNotFoundError:
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

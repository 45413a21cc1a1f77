"""Apache Kafka's jars from Maven Central, fetched once and kept in a cache.

The fetcher is Apache Ivy, whose jar comes with PySpark, so a machine needs Python and a JDK and no
Maven. Where PySpark is missing, `mvn` does the same work. Both check the checksums of their
downloads. A set of jars lives in `~/.cache/txn-peers/<name>` (`TXN_PEERS` names another place). It
appears there whole or not at all: it is fetched beside its place and then renamed.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

FETCH_SECONDS_MAX: Final = 900.0


class PeerUnavailableError(Exception):
    """A peer could not be fetched or started; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One Maven artifact; its runtime dependencies come with it."""

    group: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class JarSet:
    """Artifacts that go on one class path together."""

    name: str
    artifacts: tuple[Artifact, ...]


KAFKA: Final = "org.apache.kafka"
LOG4J: Final = "org.apache.logging.log4j"

NODE_4_2: Final = JarSet(
    "kafka-4.2.0",
    (
        Artifact(KAFKA, "kafka_2.13", "4.2.0"),
        Artifact(KAFKA, "kafka-tools", "4.2.0"),
        Artifact(LOG4J, "log4j-slf4j-impl", "2.25.3"),
        Artifact(LOG4J, "log4j-core", "2.25.3"),
    ),
)
"""A whole node, its tools and its Java client."""

NODE_4_4: Final = JarSet(
    "kafka-4.4.0",
    (
        Artifact(KAFKA, "kafka_2.13", "4.4.0"),
        Artifact(KAFKA, "kafka-tools", "4.4.0"),
        Artifact(LOG4J, "log4j-slf4j-impl", "2.25.3"),
        Artifact(LOG4J, "log4j-core", "2.25.3"),
    ),
)
"""The newest node, its tools and its Java client."""

STREAMS_4_4: Final = JarSet("kafka-streams-4.4.0", (Artifact(KAFKA, "kafka-streams", "4.4.0"),))
STREAMS_3_9: Final = JarSet("kafka-streams-3.9.2", (Artifact(KAFKA, "kafka-streams", "3.9.2"),))
"""Kafka Streams with its Java client: of transaction version 2, and of version 1."""

CONNECT_4_2: Final = JarSet(
    "kafka-connect-4.2.0",
    tuple(
        Artifact(KAFKA, name, "4.2.0")
        for name in ("connect-runtime", "connect-mirror", "connect-file")
    ),
)
"""Kafka Connect with its file connectors, and MirrorMaker."""

CONNECT_4_3: Final = JarSet(
    "kafka-connect-4.3.1",
    tuple(
        Artifact(KAFKA, name, "4.3.1")
        for name in ("connect-runtime", "connect-mirror", "connect-file")
    ),
)
"""The newest that Maven Central has whole. The connectors of 4.3.1 do not run with the Java client
of 4.4, which has moved classes that they use."""

CONTROL: Final = NODE_4_2 if os.environ.get("TXN_CONTROL") == "4.2" else NODE_4_4
"""The Apache Kafka that answers are compared with; `TXN_CONTROL=4.2` makes it the older one."""

CLIENTS_3_9: Final = JarSet("kafka-clients-3.9.2", (Artifact(KAFKA, "kafka-clients", "3.9.2"),))
"""The older Java client, the one Spark 4.2 ships: it knows transaction version 1 only."""

CLIENTS_3_7: Final = JarSet("kafka-clients-3.7.2", (Artifact(KAFKA, "kafka-clients", "3.7.2"),))
"""A Java client that cannot read a supported feature that begins at level 0 (KAFKA-17011)."""


def class_path(jars: JarSet) -> str:
    """Return the Java class path of a set, fetching it when it is not in the cache.

    Raises:
        PeerUnavailableError: no fetcher on this machine, or the download failed.
    """
    return f"{directory_of(jars)}/*"


def directory_of(jars: JarSet) -> Path:
    """Return the directory of a set, fetching it when it is not in the cache."""
    cache = Path(os.environ.get("TXN_PEERS") or Path.home() / ".cache" / "txn-peers")
    place = cache / jars.name
    if place.is_dir():
        return place
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f".{jars.name}.lock"):
        if not place.is_dir():
            _fetch_into(place, jars)
    return place


def java_executable() -> str:
    """Return the `java` to run: of JAVA_HOME, else of PATH.

    Raises:
        PeerUnavailableError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise PeerUnavailableError(
            f"no java found (JAVA_HOME={home or 'unset'}); install a JDK, version 17 or newer"
        )
    return found


def run_java(
    program: str,
    *arguments: str,
    flags: tuple[str, ...] = (),
    timeout_s: float = 120,
    jars: JarSet = NODE_4_2,
) -> str:
    """Run a class of a Kafka, 4.2 by default, or a source file beside it; return its output."""
    done = subprocess.run(
        [
            *(java_executable(), "-Xmx128m", "-Dlog4j2.level=OFF", *flags),
            *("-cp", class_path(jars), program, *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout


def _fetch_into(place: Path, jars: JarSet) -> None:
    # Beside the cache and not in the system's temporary directory: a rename must not cross
    # file systems.
    work = Path(tempfile.mkdtemp(prefix=f".{jars.name}-", dir=place.parent))
    try:
        target = work / "jars"
        target.mkdir()
        command = _ivy_command(jars, work, target) or _maven_command(jars, work, target)
        if command is None:
            raise PeerUnavailableError(
                f"cannot fetch {jars.name}: neither PySpark's Ivy nor mvn is here; "
                "install pyspark into this environment (pip install '.[spark]')"
            )
        _run_fetcher(command, jars)
        # Another artifact may need a newer version, which then takes the place of the one named.
        missing = [
            f"{artifact.name}-{artifact.version}.jar"
            for artifact in jars.artifacts
            if not any(target.glob(f"{artifact.name}-[0-9]*.jar"))
        ]
        if missing:
            raise PeerUnavailableError(
                f"{jars.name} came incomplete: {', '.join(missing)} missing; run it again"
            )
        target.rename(place)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_fetcher(command: list[str], jars: JarSet) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise PeerUnavailableError(
            f"fetching {jars.name} from Maven Central took more than {FETCH_SECONDS_MAX:.0f} s; "
            "check the network and run it again"
        ) from None
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise PeerUnavailableError(
            f"fetching {jars.name} from Maven Central failed with exit code {done.returncode}; "
            f"check the network and run it again. The end of its output:\n{tail}"
        )


def _ivy_command(jars: JarSet, work: Path, target: Path) -> list[str] | None:
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        return None
    ivy = sorted((Path(pyspark.origin).parent / "jars").glob("ivy-*.jar"))
    if not ivy:
        return None
    wanted = work / "ivy.xml"
    lines = "\n".join(
        f'    <dependency org="{a.group}" name="{a.name}" rev="{a.version}"/>'
        for a in jars.artifacts
    )
    # A pom's "default" is its jar with everything it needs at run time.
    wanted.write_text(
        '<ivy-module version="2.0">\n'
        '  <info organisation="txn" module="peer"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f'  <dependencies defaultconf="default->default">\n{lines}\n  </dependencies>\n'
        "</ivy-module>\n"
    )
    return [
        java_executable(),
        "-jar",
        str(ivy[-1]),
        *("-cache", str(work / "ivy")),
        *("-ivy", str(wanted)),
        *("-types", "jar", "bundle"),
        *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"),
        "-warn",
    ]


def _maven_command(jars: JarSet, work: Path, target: Path) -> list[str] | None:
    maven = shutil.which("mvn")
    if maven is None:
        return None
    pom = work / "pom.xml"
    dependencies = "\n".join(
        f"    <dependency><groupId>{a.group}</groupId><artifactId>{a.name}</artifactId>"
        f"<version>{a.version}</version></dependency>"
        for a in jars.artifacts
    )
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "  <modelVersion>4.0.0</modelVersion>\n"
        "  <groupId>txn</groupId><artifactId>peer</artifactId><version>1</version>\n"
        f"  <packaging>pom</packaging>\n  <dependencies>\n{dependencies}\n  </dependencies>\n"
        "</project>\n"
    )
    return [
        maven,
        *("-q", "-B", "-f", str(pom)),
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={target}",
    ]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

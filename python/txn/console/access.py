"""Who may use the console: a token that the start prints, or a user of the cluster.

The holder of the token acts with the rights of the console's own connection. A user who logs in by
name and password acts with that user's rights: the cluster checks the password and every request.
"""

import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakSet

from txn.console.sources import Sources, Way
from txn.console.threads import Threads
from txn.errors import RejectedError
from txn.security.client import SecuritySettings

SESSIONS_MAX: Final = 256
"""Beyond it, the session that was idle for the longest time ends."""

IDLE_S: Final = 12 * 3_600
"""A session ends after so many seconds without a request."""


PLANS_MAX: Final = 8
"""The most plans that a session keeps; a new one takes the place of the oldest."""


class Plans:
    """Plans that pages of a session showed, each under a random key, until they are carried out.

    So a plan of any size needs no room in a form, and no form can change it.
    """

    def __init__(self) -> None:
        self._plans: dict[str, object] = {}
        self._lock = threading.Lock()

    def keep(self, plan: object) -> str:
        """Keep a plan; return its key."""
        key = secrets.token_urlsafe(16)
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > PLANS_MAX:
                del self._plans[next(iter(self._plans))]
        return key

    def take(self, key: str) -> object | None:
        """The plan of a key, once; None: it was taken, or newer ones have its place."""
        with self._lock:
            return self._plans.pop(key, None)


@dataclass(slots=True)
class Session:
    """One logged-in browser."""

    user: str
    sources: Sources
    threads: Threads
    own_file: tuple[str, ...] = ()
    """The lines of the file that this user's commands name; none: they name the console's."""
    plans: Plans = field(default_factory=Plans)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    used: float = field(default_factory=time.monotonic)
    has_ended: bool = False

    def end(self) -> None:
        """End it, with its streams; a request that runs is still answered."""
        self.has_ended = True
        self.sources.close()


def own_file_of(security: SecuritySettings) -> tuple[str, ...]:
    """The properties by which a command connects as a user, with a place for the password."""
    username = (security.username or "").replace("\\", "\\\\")  # by Java's rules
    return (
        f"security.protocol={security.protocol}",
        f"sasl.mechanism={security.mechanism}",
        f"sasl.username={username}",
        "sasl.password=…",
        *(["ssl.truststore.location=…"] if security.is_encrypted and security.trusted else []),
    )


class Access:
    """The token and the sessions of a console."""

    def __init__(self, way: Way) -> None:
        self.way = way
        self.token: Final = secrets.token_urlsafe(24)
        self.logins: Final = Threads()
        """These threads wait for the cluster to check passwords."""
        self._threads: Final[WeakSet[Threads]] = WeakSet([self.logins])
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()

    def threads(self) -> list[Threads]:
        """Those of every session, also of one that has ended while a question waits."""
        with self._lock:
            return list(self._threads)

    def by_token(self, token: str) -> str | None:
        """Begin a session for the holder of the token; return its key, None for a wrong one."""
        if not secrets.compare_digest(token.encode("utf-8", "replace"), self.token.encode()):
            return None
        security = self.way.cluster.security
        user = security.username or ("files" if not self.way.is_running else "this console")
        return self._begin(user, security)

    def by_password(self, username: str, password: str) -> str:
        """Begin a session for a user of the cluster; return its key.

        Raises:
            RejectedError: the cluster refuses the name and the password.
            RetriableError: no broker answers.
        """
        if not self.way.takes_passwords:
            raise RejectedError("this cluster has no passwords. Log in with the token")
        security = self.way.as_user(username, password)
        sources = Sources(self.way, security, self.way.options_of_user)
        with sources.borrowed():  # the cluster checks the password here
            pass
        return self._begin(username, security, sources, own_file=own_file_of(security))

    def session(self, key: str | None, *, is_use: bool = True) -> Session | None:
        """The session of a browser; None: it has none, or it was idle for long.

        An open tab that follows its page is no use: else it would keep a session for ever.
        """
        self.end_idle()
        with self._lock:
            session = self._sessions.get(key or "")
            if session is not None and is_use:
                session.used = time.monotonic()
        return session

    def end_idle(self) -> None:
        """End the sessions that nobody has used for long."""
        now = time.monotonic()
        with self._lock:
            expired = [
                each for each, session in self._sessions.items() if now - session.used > IDLE_S
            ]
            ended = [self._sessions.pop(each) for each in expired]
        for each in ended:
            each.end()

    def end(self, key: str | None) -> None:
        """End the session of a browser."""
        with self._lock:
            session = self._sessions.pop(key or "", None)
        if session is not None:
            session.end()

    def close(self) -> None:
        """End every session."""
        with self._lock:
            keys = list(self._sessions)
        for key in keys:
            self.end(key)

    def _begin(
        self,
        user: str,
        security: SecuritySettings,
        sources: Sources | None = None,
        own_file: tuple[str, ...] = (),
    ) -> str:
        key = secrets.token_urlsafe(24)
        threads = Threads()
        session = Session(user, sources or Sources(self.way, security), threads, own_file)
        with self._lock:
            self._threads.add(threads)
            oldest = None
            if len(self._sessions) >= SESSIONS_MAX:
                idle_longest = min(self._sessions, key=lambda each: self._sessions[each].used)
                oldest = self._sessions.pop(idle_longest)
            self._sessions[key] = session
        if oldest is not None:
            oldest.end()
        return key

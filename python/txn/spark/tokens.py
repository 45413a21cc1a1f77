"""A function for tokens that travels with a query: `.option("txn.token", txn.spark.token(f))`.

An option of Spark's is text, so the function is pickled into one. It is called by every process
that logs in: on the driver, by the planner, on the workers; at each authentication. A function of a
module goes by its name, and its module has to be on every node. One of `__main__` or a notebook
goes whole, with the values that it refers to.
"""

import base64
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from txn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PickledFunction:
    """A function as bytes, so that it can be compared and sent; loaded once per process."""

    data: bytes = field(repr=False)

    def __call__(self) -> str:
        """Call the function."""
        return _loaded(self.data)()


def token(call: Callable[[], str]) -> str:
    """Return the value of the option `txn.token` for a function that returns a token.

    Args:
        call: Takes nothing and returns the token for OAUTHBEARER. It may keep one for a while: it
            is loaded once per process, and called for every connection that logs in.

    Raises:
        ConfigError: it cannot be called, or not be pickled: it refers to an open connection or the
            Spark session, for example.
    """
    from pyspark import cloudpickle

    if not callable(call):
        raise ConfigError("txn.spark.token takes a function that returns a token, not the token")
    try:
        data: bytes = cloudpickle.dumps(call)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ConfigError(
            "the function for tokens cannot be sent to Spark's workers: pickling it raised "
            f"{type(error).__name__}. Let it open its own connections, and refer to no session"
        ) from error
    return base64.b64encode(data).decode()


def pickled(text: str) -> PickledFunction:
    """Read the option's value. Raises ValueError: it is not of `token`."""
    data = base64.b64decode(text, validate=True)
    if data[:1] != pickle.PROTO:
        raise ValueError("no pickle")
    return PickledFunction(data)


@lru_cache(maxsize=8)
def _loaded(data: bytes) -> Callable[[], str]:
    function: Callable[[], str] = pickle.loads(data)
    return function

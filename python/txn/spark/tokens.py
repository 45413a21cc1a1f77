"""Functions for tokens, which a query's option `txn.token` calls by a name.

    txn.spark.register(spark, tokens={"msk": msk_token})
    spark.readStream.format("txn").option("txn.token", "msk")

An option of Spark's is text, and SQL may set it. So it can only name a function that the program
has registered. The functions go along with the data source that is registered in the session.
So each process that logs in has them: on the driver, by the planner, on the workers. A function
of a module goes by its name, and its module has to be on every node. One of `__main__` or a
notebook goes whole, with the values that it refers to.
"""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from txn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PickledFunction:
    """A function as bytes, so that it can be compared and sent; loaded once per process.

    The bytes are those that `register` made. They never come from an option.
    """

    data: bytes = field(repr=False)

    def __call__(self) -> str:
        """Call the function."""
        return _loaded(self.data)()


Tokens = Mapping[str, PickledFunction]
"""Functions for tokens by their names."""

NO_TOKENS: Final[Tokens] = {}

registered: dict[str, PickledFunction] = {}
"""Those that this program has registered, in whichever session."""


def add(tokens: Mapping[str, Callable[[], str]]) -> None:
    """Add to `registered`; a name that is there gets its new function.

    Raises:
        ConfigError: one cannot be called, or not be pickled: it refers to an open connection or the
            Spark session, for example.
    """
    registered.update({name: _pickled(name, call) for name, call in tokens.items()})


def token_named(name: str, tokens: Tokens) -> PickledFunction:
    """The function that `txn.token` names.

    Raises:
        ConfigError: the session has none of this name. The message omits the name: it may be a
        token.
    """
    if name in tokens:
        return tokens[name]
    known = f"it has {', '.join(sorted(tokens))}" if tokens else "it has none"
    raise ConfigError(
        f"option txn.token names a function that the session does not have ({known}). Register it "
        "under its name: txn.spark.register(spark, tokens={'name': function})",
        option="txn.token",
    )


def _pickled(name: str, call: Callable[[], str]) -> PickledFunction:
    from pyspark import cloudpickle

    if not callable(call):
        raise ConfigError(f"tokens[{name!r}] is no function. Give one that returns a token")
    try:
        return PickledFunction(cloudpickle.dumps(call))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ConfigError(
            f"tokens[{name!r}] cannot be sent to Spark's workers: pickling it raised "
            f"{type(error).__name__}. Let it open its own connections, and refer to no session"
        ) from error


@lru_cache(maxsize=8)
def _loaded(data: bytes) -> Callable[[], str]:
    function: Callable[[], str] = pickle.loads(data)
    return function

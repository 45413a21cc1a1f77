"""A test's broker as a process of its own: `python -m txn.testing.own_process`.

Words: directory, advertised port, milliseconds that its clock is ahead, then PROPERTY=VALUE.
Prints `ready PORT`. Reads `advance MILLISECONDS` lines and answers `done`; stops in order when its
standard input ends.
"""

import signal
import sys
from pathlib import Path

from txn.errors import TxnError
from txn.server.lifecycle.serve import parse_option
from txn.testing.clock import Ahead
from txn.testing.engine import DONE, READY, Embedded


def main(words: list[str]) -> int:
    """Serve until standard input ends; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test, which closes stdin
    directory, advertised_port, ahead_ms, *options = words
    engine = Embedded(dict(map(parse_option, options)), Ahead(int(ahead_ms)))
    try:
        engine.start(Path(directory), int(advertised_port))
    except TxnError as error:
        print(error, flush=True)
        return 1
    print(f"{READY}{engine.port}", flush=True)
    for line in sys.stdin:
        engine.advance(int(line.split()[1]))
        print(DONE, flush=True)
    engine.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

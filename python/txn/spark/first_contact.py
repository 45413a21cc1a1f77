"""The first contact with a cluster: wrong servers are reported within seconds.

A request is repeated for three minutes, so that a running query survives an outage. At a start
a wrong address is more likely than an outage. So a process that has reached no broker of a
cluster yet checks the addresses itself before it plans.

| the addresses | reported after |
|---|---|
| lead to something else | the first look |
| refuse connections, or have unknown names | `REFUSAL_S` |
| do not answer, at least one of them | `SILENCE_S` |

Each batch of a running query may be planned by a new process. So the sink makes first contact only
for a query that has no batch behind it.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from txn.errors import ConfigError, UnreachableError
from txn.spark.options import ClusterAccess

if TYPE_CHECKING:
    from txn.client.reach import AddressFault

REFUSAL_S: Final = 5.0
SILENCE_S: Final = 30.0
"""A broker under heavy load may be silent for a while."""

LOOK_S: Final = 0.5

_answered: Final[set[str]] = set()
"""Bootstrap servers that led this process to a broker once."""


def await_cluster(access: ClusterAccess) -> None:
    """Wait until an address of the cluster answers as a broker does, for some seconds at most.

    Raises:
        ConfigError: an address cannot be read.
        UnreachableError: none does; the message has the fault of each.
    """
    if access.bootstrap_servers in _answered:
        return
    # Here, since it brings confluent-kafka with it, and tasks have no need of that.
    from txn.client.reach import addresses_in, fault_in, look

    if mistake := fault_in(access.bootstrap_servers):
        option = "kafka.bootstrap.servers"
        raise ConfigError(f"{option}: {mistake}", option=option)
    began_s = time.monotonic()
    longest_s = access.timeout_ms / 1_000
    has_tls = access.security.is_encrypted
    while True:
        faults: dict[str, AddressFault] = {}
        for host, port in addresses_in(access.bootstrap_servers):
            fault = look(host, port, has_tls)
            if fault is None:
                _answered.add(access.bootstrap_servers)
                return
            faults[f"{host}:{port}"] = fault
        patience_s = SILENCE_S if any(f.is_silence for f in faults.values()) else REFUSAL_S
        is_certain = all(fault.is_final for fault in faults.values())
        if is_certain or time.monotonic() - began_s >= min(patience_s, longest_s):
            raise _unreachable(faults, is_certain)
        time.sleep(LOOK_S)


def _unreachable(faults: "Mapping[str, AddressFault]", is_certain: bool) -> UnreachableError:
    reasons = {address: fault.what for address, fault in faults.items()}
    listed = "; ".join(f"{address} {what}" for address, what in reasons.items())
    advice = "" if is_certain else ", or start the brokers"
    return UnreachableError(
        f"no broker is reached by kafka.bootstrap.servers: {listed}. Correct the option{advice}",
        reasons=reasons,
        address=next(iter(reasons)),
    )

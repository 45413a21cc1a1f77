"""The faults of a test's broker: of connections, requests, answers, producers and groups."""

from txn.errors import RejectedError
from txn.testing.faults import Effect, Fault
from txn.testing.open_broker import OpenBroker
from txn.testing.wire import api_key, error_code
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode


class BrokerFaults(OpenBroker):
    """The faults that a test asks for; each lasts until it happened, or until `heal`."""

    def pause(self) -> None:
        """Block all requests and answers until `resume`; connections stay open."""
        self._require_open()
        self._proxy.pause()

    def resume(self) -> None:
        """End a `pause`."""
        self._require_open()
        self._proxy.resume()

    def delay(self, seconds: float) -> None:
        """Delay every request and every answer; 0 ends it. Raises RejectedError: below 0."""
        self._require_open()
        if not 0 <= seconds < float("inf"):
            raise RejectedError(f"a delay is 0 seconds or more, not {seconds!r}")
        self._proxy.delay(seconds)

    def cut(self, client_id: str | None = None) -> int:
        """Cut the clients' connections, or those of one `client.id`; return their number.

        Raises:
            RejectedError: no client is connected.
        """
        self._require_open()
        count = self._proxy.cut(client_id)
        if not count:
            of_id = "" if client_id is None else f" with client.id {client_id!r}"
            raise RejectedError(
                f"no client{of_id} is connected, so no connection was cut. Wait for its first "
                "request, or hold() it"
            )
        return count

    def lose_request(self, api: str, number: int = 1) -> Fault:
        """Cut the connection of the next request of an API; the broker does not get it."""
        return self._fault(Effect.LOSE_REQUEST, api, number)

    def lose_answer(self, api: str, number: int = 1) -> Fault:
        """Cut a connection instead of passing the next answer of an API on: the work is done.

        Args:
            api: Kafka's name of the API, `EndTxn`.
            number: 1 for the next one, 2 for the one behind it.

        Raises:
            RejectedError: there is no such API.
        """
        return self._fault(Effect.LOSE_ANSWER, api, number)

    def hold(self, api: str, number: int = 1) -> Fault:
        """Hold the next request of an API before the broker gets it, until `Fault.release`."""
        return self._fault(Effect.HOLD_REQUEST, api, number)

    def hold_answer(self, api: str, number: int = 1) -> Fault:
        """Hold the next answer of an API: the broker has done its work, the client waits."""
        return self._fault(Effect.HOLD_ANSWER, api, number)

    def refuse_next_append(
        self, topic: str | None = None, *, error: str = "INVALID_RECORD"
    ) -> Fault:
        """Refuse the next Produce, or the next one to a topic.

        Args:
            topic: The topic.
            error: Kafka's name of the error. A client tries again after a retriable one, such as
                NOT_ENOUGH_REPLICAS.

        Raises:
            RejectedError: there is no such topic or error.
        """
        code = error_code(error)
        if topic is not None:
            self._client().partition_count(topic)
        return self._fault(Effect.REFUSE, "Produce", 1, topic, code)

    def fence(self, transactional_id: str) -> None:
        """Take over a transactional id, as another instance of its producer does.

        Raises:
            RejectedError: no producer has it.
        """
        self._client().fence(transactional_id)

    def rebalance(self, group: str) -> int:
        """Remove every member from a group, so that they join again; return their number.

        Members lose their partitions at once, and notice it at their next heartbeat or commit. The
        group may have either protocol, `classic` or `consumer` (KIP-848), and members of both.

        Raises:
            RejectedError: the group has no members.
        """
        return self._client().remove_members(group)

    def heal(self) -> None:
        """End pauses and delays, release held requests, drop faults that did not happen."""
        self._require_open()
        self._proxy.heal()

    def _fault(
        self,
        effect: Effect,
        api: str,
        number: int,
        topic: str | None = None,
        code: ErrorCode = ErrorCode.NONE,
    ) -> Fault:
        self._require_open()
        key: ApiKey = api_key(api)
        if number < 1:
            raise RejectedError(f"number is 1 for the next {api}, not {number}")
        fault = Fault(effect, key, number=number, topic=topic, code=code)
        self._proxy.add(fault)
        return fault

"""Which error codes of an administrator's request are worth another try."""

import pytest

from txn.admin.refusals import require
from txn.errors import Action, RejectedError, RetriableError
from txn.wire.error_codes import ErrorCode

E = ErrorCode

# The error codes whose exception is a RetriableException in Apache Kafka 4.4's `Errors`.
RETRIABLE_IN_KAFKA = {
    *(2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84),
    *(88, 89, 100, 103, 106, 122, 123, 133),
}
STAYING = {
    *(E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID, E.INCONSISTENT_TOPIC_ID),
    *(E.ELECTION_NOT_NEEDED, E.CORRUPT_MESSAGE),
    *(E.FETCH_SESSION_ID_NOT_FOUND, E.INVALID_FETCH_SESSION_EPOCH, E.FETCH_SESSION_TOPIC_ID_ERROR),
    *(E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH, E.SHARE_SESSION_LIMIT_REACHED),
}


@pytest.mark.parametrize("code", [each for each in ErrorCode if each is not E.NONE], ids=str)
def test_an_error_is_retriable_if_it_is_in_Kafka_and_may_pass(code: ErrorCode) -> None:
    expected = code in RETRIABLE_IN_KAFKA and code not in STAYING
    with pytest.raises(RetriableError if expected else RejectedError) as raised:
        require(code, None, "topic 'orders' is not created", needs="Create on the topic")
    assert raised.value.code == code
    assert str(raised.value).startswith(f"topic 'orders' is not created: {code.name}")
    assert not expected or raised.value.action is Action.RETRY
    assert not expected or "again" in str(raised.value)


def test_a_retriable_error_has_the_words_of_the_broker() -> None:
    with pytest.raises(RetriableError, match=r"REQUEST_TIMED_OUT: the disk is slow\. It may have"):
        require(E.REQUEST_TIMED_OUT, "the disk is slow.", "topic 'a' is not created", needs="")

"""The index of APIs, which a start reads in the place of the modules that declare them."""

from collections import Counter

from api_index import INDEX, index
from txn.broker.apis.index import APIS_BY_MODULE


def test_the_index_has_the_apis_that_the_modules_declare() -> None:
    assert INDEX.read_text() == index(), "`make fmt` writes it"


def test_no_api_is_declared_twice() -> None:
    declared = Counter(key for apis in APIS_BY_MODULE.values() for key in apis)
    assert [key for key, times in declared.items() if times > 1] == []

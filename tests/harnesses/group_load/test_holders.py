"""The load notices a partition with two holders."""

from harnesses.group_load.holders import Holders


def test_a_partition_with_two_holders_is_a_problem() -> None:
    holders = Holders()
    holders.take("g", "one", [0, 1])
    holders.take("other", "two", [0])
    assert holders.problems == []
    holders.take("g", "two", [1])
    assert holders.problems == ["g: 1 was given to two members at once"]


def test_a_partition_that_was_given_up_may_have_another_holder() -> None:
    holders = Holders()
    holders.take("g", "one", [0])
    holders.drop("g", "two", [0])
    holders.drop("g", "one", [0])
    holders.take("g", "two", [0])
    assert (holders.problems, holders.taken) == ([], 2)

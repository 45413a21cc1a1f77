"""The transaction coordinator. Its modules, in the order of a transaction's life:

    coordinator        the door: every call from outside finds the shard of its id
    transactional_id   the requests of one id: begin, add partitions, end, abort
    markers            the steps of an end that touch logs
    partitions         the partitions that a transaction writes to
    operator_markers   a marker that an operator asks for
    timers             time-outs, retries, and the sweep of expired ids
    state, shards      the state of a shard, its records, and their replay
    recovery           a start and an election
    prepared           the Prepares that a start finds
    power_failure      lost markers and fences after a power failure

The rules are in `txn.coordinator.transaction`, and are pure.
"""

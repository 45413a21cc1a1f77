"""The classic group protocol: how consumers share partitions among themselves.

Modules, in the order of a member's life:

    requests       JoinGroup, SyncGroup, LeaveGroup and their answers
    group          the states of a group, its legal moves, the record of a generation
    refusals       why a request is refused
    joining        JoinGroup, case by case
    draft          one transition in the making: members, the round, assignments
    membership     SyncGroup, Heartbeat, LeaveGroup, and deadlines that pass
    subscriptions  the topics that the members consume

Pure: no clock, no log, no socket, no randomness. A function takes a group, the event and the time.
It returns a `GroupTransition`: the group as it will be, the answers to give, and the record to
write first. Nobody may act on an outcome whose record is not written; if the write fails the old
group stays, as if nothing had happened.

    Empty ──join──► PreparingRebalance ──all joined──► CompletingRebalance ──leader synced──► Stable
      ▲                 │ ▲   ▲                              │                                 │
      └── nobody left ──┘ │   └─── someone came or went ─────┘                                 │
                          └────────────── someone came, went, or asks for it ──────────────────┘

A round: every member sends JoinGroup and waits. When all have, or the rebalance timeout is over,
the generation grows by one and each is answered; the leader gets the list of members. It computes
the assignment with the assignor all have in common, as range or cooperative sticky; to the broker
the assignment is opaque bytes. It hands the assignment in with SyncGroup, where the others wait for
theirs.

Durable parts. Only a finished generation is written, as `GroupValue`: when a group is created,
becomes Stable or Empty, or when a static member is replaced without a rebalance. After a restart
`restore` gives the members of the last generation back with fresh session timers. An unfinished
round begins again, for its clients lost their connections. So in the states Stable
and Empty `group_value(group)` is the last record written, after any history (P8).

Waiting. JoinGroup and SyncGroup carry a ticket, a number of the caller's; each ticket is answered
exactly once, at once or later. Deadlines are part of the group: `next_deadline` says when `expire`
has to be called, and a call that comes too early changes nothing.

The members. A dynamic member has to know its id first (KIP-394): it is only *pending* until it
comes back with the id it was given. A static member (KIP-345) is known by its instance id. A new
one with that id takes the place of the old, which is fenced from then on.

Where Kafka differs. Here no ticket is ever dropped. When a member asks again on another connection,
or leaves while it waits for its assignment, the older request is answered too. A refused first join
makes no group. A pending member that leaves starts no rebalance. A SyncGroup that a replaced static
member still owes passes to its new id. If nobody rejoined, the next try comes after the rebalance
timeout but at least a second. A tie of votes goes to the protocol of the member that joined first.
If a group has no place for a member that joins again, the others no longer wait for that member.

Sources: KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-389
(group size), KIP-394 (member id). KIP-447 (fenced offsets), KIP-559 (protocol in SyncGroup),
KIP-800 (reasons) and KIP-814 (skipped assignment). Apache Kafka's behaviour where these are silent.
"""

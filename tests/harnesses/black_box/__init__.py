"""A black-box checker: real clients, real sockets, and everything that can be taken from them.

    python -m harnesses.black_box --seconds 600 --seed 7    (in tests/, or by `make black-box`)

Clients are processes, some on librdkafka (transaction version 1), some on the Java client (version
2). There are writers (transactions of 1–4 sends and polls, ended in every way), idempotent
producers, and two stages of copiers that consume, transform and produce. Meanwhile a nemesis kills
and stops broker and clients, and cuts and delays their connections in a proxy. It also lets a
second instance take over a transactional id. Each client notes its answers as they come, so its
notes outlive it. At the end the copiers drain the topics, and the judge compares all notes with the
records that readers find.

    history    what was noted: attempts, reads, ends, and the views of the final readers
    judge      pure: a history in, anomalies by name out (with facts, judge_reads)
    client     one client as a process (librdkafka); java/Client.java is its Java sister
    events     the file of notes that a client leaves
    workload   which clients there are, and their processes
    proxy      between clients and broker: cuts, delays, holds EndTxn back
    nemesis    what is done to whom, and when
    targets    what is checked: txn, Apache Kafka, librdkafka's mock cluster
    broken     txn with one rule broken, or with a disk that forgets: the negative controls
    run        one run from start to verdict
    observer   who watches from the outside: follower, ends, final readers

The seed settles every choice of each client and of the nemesis, but not how they meet. So a run
with the same seed is alike, not the same.
"""

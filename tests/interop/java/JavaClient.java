import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What a program on the real Java client may expect of a Kafka broker, step by step.
 *
 * <p>Usage: {@code java -cp '<kafka-clients jars>' JavaClient.java HOST:PORT PROTOCOL}. Prints {@code ok
 * <step>} for every step that held; the first that does not ends the program with exit code 1 and
 * what was expected. Written for kafka-clients 3.9 and 4.x alike; every run uses names of its own.
 */
public final class JavaClient {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final Duration POLL = Duration.ofMillis(200);

    private static final List<String> ASSIGNORS =
            List.of(
                    "org.apache.kafka.clients.consumer.RangeAssignor",
                    "org.apache.kafka.clients.consumer.RoundRobinAssignor",
                    "org.apache.kafka.clients.consumer.StickyAssignor",
                    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    /** The assignors of the broker, by which it answers members of the consumer protocol. */
    private static final List<String> REMOTE_ASSIGNORS = List.of("uniform", "range");

    private final String servers;
    private final boolean isRemote;
    private final String run = UUID.randomUUID().toString().substring(0, 8);

    private JavaClient(String servers, String protocol) {
        this.servers = servers;
        this.isRemote = protocol.equals("consumer");
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 2) {
            System.err.println("usage: JavaClient.java HOST:PORT classic|consumer");
            System.exit(2);
        }
        try {
            new JavaClient(arguments[0], arguments[1]).steps();
        } catch (Throwable failure) {
            failure.printStackTrace(System.out);
            System.exit(1);
        }
        System.exit(0);
    }

    private void steps() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            step("create, list and describe topics", () -> topics(admin));
            step("idempotent produce keeps order and hands out offsets", () -> idempotent(admin));
            step("keys, null values, headers and timestamps survive", () -> records(admin));
            for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) {
                step("compression " + codec, () -> compression(admin, codec));
            }
            step("a committed transaction is seen, an aborted one is not", () -> isolation(admin));
            step("an open transaction holds read_committed back", () -> open(admin));
            for (String assignor : isRemote ? REMOTE_ASSIGNORS : ASSIGNORS) {
                String name = assignor.substring(assignor.lastIndexOf('.') + 1);
                step("two members share a group by " + name, () -> group(admin, assignor));
            }
            step("consume, transform, produce with offsets", () -> transform(admin));
            step("offsets of an aborted transaction are not committed", () -> undone(admin));
            step("a member left behind cannot commit offsets", () -> leftBehind(admin));
            step("a zombie is fenced", () -> zombie(admin));
            step("listOffsets and offsetsForTimes", () -> offsets(admin));
            step("list and describe transactions and producers", () -> transactions(admin));
            step("settings are described and altered", () -> settings(admin));
            step("deleted records are gone", () -> deleteRecords(admin));
            step("delete topics", () -> delete(admin));
        }
    }

    private void topics(Admin admin) throws Exception {
        String name = topic(admin, "described", 3);

        TopicDescription found = get(admin.describeTopics(List.of(name)).allTopicNames()).get(name);

        expect("partitions", 3, found.partitions().size());
        expect("has a leader", true, found.partitions().get(2).leader() != null);
        expect("is internal", false, found.isInternal());
        expect("listed", true, get(admin.listTopics().names()).contains(name));
    }

    private void idempotent(Admin admin) throws Exception {
        String name = topic(admin, "idempotent", 1);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(Map.of("linger.ms", 1))) {
            for (int n = 0; n < 1000; n++) {
                sent.add(producer.send(new ProducerRecord<>(name, Integer.toString(n))));
            }
            producer.flush();
        }

        for (int n = 0; n < sent.size(); n++) {
            expect("offset", (long) n, sent.get(n).get().offset());
        }
        expect("values in order", numbers(0, 1000), values(name, "read_committed"));
    }

    private void records(Admin admin) throws Exception {
        String name = topic(admin, "records", 1);
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            ProducerRecord<String, String> record = new ProducerRecord<>(name, 0, 1234L, "k", "v");
            record.headers().add("h", "x".getBytes(StandardCharsets.UTF_8));
            get(producer.send(record));
            get(producer.send(new ProducerRecord<>(name, "gone", null)));
        }

        List<ConsumerRecord<String, String>> found = read(name, "read_committed");

        expect("key", "k", found.get(0).key());
        expect("timestamp", 1234L, found.get(0).timestamp());
        expect("header", "x", new String(found.get(0).headers().lastHeader("h").value()));
        expect("tombstone's key", "gone", found.get(1).key());
        expect("tombstone", null, found.get(1).value());
    }

    private void compression(Admin admin, String codec) throws Exception {
        String name = topic(admin, "codec-" + codec, 1);
        try (KafkaProducer<String, String> producer =
                producer(Map.of("compression.type", codec, "linger.ms", 20))) {
            numbers(0, 500).forEach(value -> producer.send(new ProducerRecord<>(name, value)));
        }
        expect("values", numbers(0, 500), values(name, "read_committed"));

        String stored = unique("stored-" + codec);
        NewTopic topic = new NewTopic(stored, 1, (short) 1);
        get(admin.createTopics(List.of(topic.configs(Map.of("compression.type", codec)))).all());
        try (KafkaProducer<String, String> producer = producer(Map.of("linger.ms", 20))) {
            numbers(0, 500).forEach(value -> producer.send(new ProducerRecord<>(stored, value)));
        }
        expect("values", numbers(0, 500), values(stored, "read_committed"));
    }

    private void isolation(Admin admin) throws Exception {
        String name = topic(admin, "isolation", 2);
        try (KafkaProducer<String, String> producer = transactional("isolation")) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, 0, null, "kept 1"));
            producer.send(new ProducerRecord<>(name, 1, null, "kept 2"));
            producer.commitTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, 0, null, "aborted"));
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, 0, null, "kept 3"));
            producer.commitTransaction();
        }

        expect("committed", Set.of("kept 1", "kept 2", "kept 3"), set(name, "read_committed"));
        expect(
                "uncommitted",
                Set.of("kept 1", "kept 2", "kept 3", "aborted"),
                set(name, "read_uncommitted"));
    }

    private void open(Admin admin) throws Exception {
        String name = topic(admin, "open", 1);
        TopicPartition partition = new TopicPartition(name, 0);
        try (KafkaProducer<String, String> plain = producer(Map.of());
                KafkaProducer<String, String> producer = transactional("open");
                KafkaConsumer<String, String> reader = consumer(null, "read_committed", Map.of())) {
            get(plain.send(new ProducerRecord<>(name, "before")));
            producer.beginTransaction();
            get(producer.send(new ProducerRecord<>(name, "within")));
            get(plain.send(new ProducerRecord<>(name, "after")));
            Map<TopicPartition, Long> stable = reader.endOffsets(List.of(partition));
            List<String> visible = values(name, "read_committed");
            producer.commitTransaction();

            expect("last stable offset", 1L, stable.get(partition));
            expect("visible while open", List.of("before"), visible);
            expect(
                    "visible at the end",
                    List.of("before", "within", "after"),
                    values(name, "read_committed"));
        }
    }

    /** A partition that changed hands is read again from what was committed. */
    private static boolean hasRead(KafkaConsumer<String, String> consumer, long end) {
        return consumer.assignment().stream().allMatch(place -> consumer.position(place) == end);
    }

    private void group(Admin admin, String assignor) throws Exception {
        String name = topic(admin, "group", 4);
        String group = unique("group");
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (int n = 0; n < 40; n++) {
                producer.send(new ProducerRecord<>(name, n % 4, null, Integer.toString(n)));
            }
        }
        String setting = isRemote ? "group.remote.assignor" : "partition.assignment.strategy";
        Map<String, Object> settings = Map.of(setting, assignor);
        Set<String> seen = new HashSet<>();
        KafkaConsumer<String, String> first = consumer(group, "read_committed", settings);
        KafkaConsumer<String, String> second = consumer(group, "read_committed", settings);
        try {
            first.subscribe(List.of(name));
            second.subscribe(List.of(name));
            await(
                    "each member has two partitions",
                    () -> {
                        poll(first, seen);
                        poll(second, seen);
                        return first.assignment().size() == 2 && second.assignment().size() == 2;
                    });
            Set<TopicPartition> both = new HashSet<>(first.assignment());
            both.addAll(second.assignment());
            expect("partitions assigned once", 4, both.size());
            await(
                    "all records are read",
                    () -> {
                        poll(first, seen);
                        poll(second, seen);
                        return seen.size() == 40 && hasRead(first, 10) && hasRead(second, 10);
                    });
            first.commitSync();
            second.commitSync();
            second.close();
            await(
                    "the one that stays gets everything",
                    () -> {
                        poll(first, seen);
                        return first.assignment().size() == 4;
                    });
            Map<TopicPartition, OffsetAndMetadata> committed = first.committed(both);
            for (TopicPartition partition : both) {
                expect("committed offset of " + partition, 10L, committed.get(partition).offset());
            }
        } finally {
            second.close();
            first.close();
        }
    }

    private void transform(Admin admin) throws Exception {
        String source = topic(admin, "source", 2);
        String sink = topic(admin, "sink", 1);
        fill(source, 20);
        try (KafkaConsumer<String, String> consumer =
                        consumer(unique("copy"), "read_committed", Map.of());
                KafkaProducer<String, String> producer = transactional("copy")) {
            consumer.subscribe(List.of(source));
            Set<String> copied = new HashSet<>();
            await(
                    "everything is copied",
                    () -> {
                        producer.beginTransaction();
                        for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                            producer.send(new ProducerRecord<>(sink, "x" + record.value()));
                            copied.add(record.value());
                        }
                        producer.sendOffsetsToTransaction(
                                positions(consumer), consumer.groupMetadata());
                        producer.commitTransaction();
                        return copied.size() == 20;
                    });

            long committed =
                    consumer.committed(partitions(source, 2)).values().stream()
                            .mapToLong(OffsetAndMetadata::offset)
                            .sum();
            expect("committed offsets", 20L, committed);
        }
        List<String> wanted =
                numbers(0, 20).stream().map(value -> "x" + value).sorted().toList();
        expect(
                "output", wanted, values(sink, "read_committed").stream().sorted().toList());
    }

    private void undone(Admin admin) throws Exception {
        String source = topic(admin, "undone", 1);
        fill(source, 5);
        try (KafkaConsumer<String, String> consumer =
                        consumer(unique("undone"), "read_committed", Map.of());
                KafkaProducer<String, String> producer = transactional("undone")) {
            consumer.subscribe(List.of(source));
            Set<String> seen = new HashSet<>();
            await(
                    "the source is read",
                    () -> {
                        poll(consumer, seen);
                        return seen.size() == 5;
                    });
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(positions(consumer), consumer.groupMetadata());
            producer.abortTransaction();

            TopicPartition partition = new TopicPartition(source, 0);
            expect("committed", null, consumer.committed(Set.of(partition)).get(partition));

            producer.beginTransaction();
            producer.sendOffsetsToTransaction(positions(consumer), consumer.groupMetadata());
            producer.commitTransaction();
            expect("committed", 5L, consumer.committed(Set.of(partition)).get(partition).offset());
        }
    }

    private void leftBehind(Admin admin) throws Exception {
        String source = topic(admin, "left-behind", 1);
        fill(source, 5);
        String group = unique("left-behind");
        ConsumerGroupMetadata stale;
        try (KafkaConsumer<String, String> consumer =
                consumer(group, "read_committed", Map.of())) {
            consumer.subscribe(List.of(source));
            await(
                    "the member has the partition",
                    () -> {
                        consumer.poll(POLL);
                        return consumer.assignment().size() == 1;
                    });
            stale = consumer.groupMetadata();
        }
        TopicPartition partition = new TopicPartition(source, 0);
        try (KafkaProducer<String, String> producer = transactional("left-behind")) {
            producer.beginTransaction();
            String refused = "nothing";
            try {
                producer.sendOffsetsToTransaction(
                        Map.of(partition, new OffsetAndMetadata(3)), stale);
            } catch (CommitFailedException expected) {
                refused = "CommitFailedException";
            }
            producer.abortTransaction();
            expect("raised", "CommitFailedException", refused);
        }
        try (KafkaConsumer<String, String> consumer =
                consumer(group, "read_committed", Map.of())) {
            expect("committed", null, consumer.committed(Set.of(partition)).get(partition));
        }
    }

    private void zombie(Admin admin) throws Exception {
        String name = topic(admin, "zombie", 1);
        KafkaProducer<String, String> zombie = transactional("zombie");
        try (zombie) {
            zombie.beginTransaction();
            get(zombie.send(new ProducerRecord<>(name, "by the zombie, early")));
            try (KafkaProducer<String, String> successor = transactional("zombie")) {
                boolean isFenced = false;
                try {
                    zombie.send(new ProducerRecord<>(name, "by the zombie, late"));
                    zombie.commitTransaction();
                } catch (KafkaException failure) {
                    isFenced = isFencing(failure);
                    expect("a fencing failure, not " + failure, true, isFenced);
                }
                expect("the zombie is fenced", true, isFenced);
                successor.beginTransaction();
                successor.send(new ProducerRecord<>(name, "by the successor"));
                successor.commitTransaction();
            }
        }
        expect("visible", List.of("by the successor"), values(name, "read_committed"));
    }

    private static boolean isFencing(Throwable failure) {
        return failure != null
                && (failure instanceof ProducerFencedException
                        || failure instanceof InvalidProducerEpochException
                        || isFencing(failure.getCause()));
    }

    private void offsets(Admin admin) throws Exception {
        String name = topic(admin, "offsets", 1);
        TopicPartition partition = new TopicPartition(name, 0);
        try (KafkaProducer<String, String> producer = producer(Map.of());
                KafkaConsumer<String, String> consumer =
                        consumer(null, "read_committed", Map.of())) {
            for (long time : new long[] {1000, 3000, 2000}) {
                get(producer.send(new ProducerRecord<>(name, 0, time, null, "t" + time)));
            }

            expect("earliest", 0L, offset(admin, partition, OffsetSpec.earliest()).offset());
            expect("latest", 3L, offset(admin, partition, OffsetSpec.latest()).offset());
            ListOffsetsResultInfo later = offset(admin, partition, OffsetSpec.forTimestamp(1500));
            expect("first at or after 1500", 1L, later.offset());
            expect("its timestamp", 3000L, later.timestamp());
            ListOffsetsResultInfo newest = offset(admin, partition, OffsetSpec.maxTimestamp());
            expect("record of the newest timestamp", 1L, newest.offset());
            expect("newest timestamp", 3000L, newest.timestamp());
            ListOffsetsResultInfo none = offset(admin, partition, OffsetSpec.forTimestamp(9000));
            expect("none at or after 9000", -1L, none.offset());

            expect(
                    "offsetsForTimes",
                    0L,
                    consumer.offsetsForTimes(Map.of(partition, 500L)).get(partition).offset());
            expect(
                    "offsetsForTimes beyond the end",
                    null,
                    consumer.offsetsForTimes(Map.of(partition, 9000L)).get(partition));
            expect("beginning", 0L, consumer.beginningOffsets(List.of(partition)).get(partition));
            expect("end", 3L, consumer.endOffsets(List.of(partition)).get(partition));
        }
    }

    private void transactions(Admin admin) throws Exception {
        String name = topic(admin, "transactions", 1);
        TopicPartition partition = new TopicPartition(name, 0);
        String id = unique("observed");
        try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", id))) {
            producer.initTransactions();
            expect("before", TransactionState.EMPTY, describe(admin, id).state());

            producer.beginTransaction();
            get(producer.send(new ProducerRecord<>(name, "a")));
            TransactionDescription open = describe(admin, id);
            expect("while open", TransactionState.ONGOING, open.state());
            expect("its partitions", Set.of(partition), open.topicPartitions());
            expect("has a start", true, open.transactionStartTimeMs().isPresent());
            expect("time-out", 60000L, open.transactionTimeoutMs());

            ListTransactionsOptions ongoing =
                    new ListTransactionsOptions()
                            .filterStates(Set.of(TransactionState.ONGOING))
                            .filterProducerIds(Set.of(open.producerId()));
            Set<String> listed =
                    get(admin.listTransactions(ongoing).all()).stream()
                            .map(listing -> listing.transactionalId())
                            .collect(Collectors.toSet());
            expect("listed as ongoing", Set.of(id), listed);

            var active =
                    get(admin.describeProducers(List.of(partition)).all())
                            .get(partition)
                            .activeProducers()
                            .get(0);
            expect("active producer", open.producerId(), active.producerId());
            expect("its open transaction", 0L, active.currentTransactionStartOffset().getAsLong());

            producer.commitTransaction();
            await(
                    "the commit completes",
                    () -> describe(admin, id).state() == TransactionState.COMPLETE_COMMIT);
        }
    }

    private void settings(Admin admin) throws Exception {
        String name = topic(admin, "settings", 1);
        ConfigEntry given = setting(admin, name, "retention.ms");
        expect("type", ConfigEntry.ConfigType.LONG, given.type());
        expect("is default", true, given.isDefault());

        get(alter(admin, name, "retention.ms", "5000", AlterConfigOp.OpType.SET));
        get(alter(admin, name, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND));

        await(
                "the policies are altered",
                () -> setting(admin, name, "cleanup.policy").value().equals("delete,compact"));
        ConfigEntry altered = setting(admin, name, "retention.ms");
        expect("altered", "5000", altered.value());
        expect("source", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, altered.source());
        boolean isInvalid = false;
        try {
            get(alter(admin, name, "retention.ms", "soon", AlterConfigOp.OpType.SET));
        } catch (ExecutionException failure) {
            isInvalid = failure.getCause() instanceof InvalidConfigurationException;
        }
        expect("a value that does not fit is refused", true, isInvalid);
    }

    private void deleteRecords(Admin admin) throws Exception {
        String name = topic(admin, "records-deleted", 1);
        TopicPartition partition = new TopicPartition(name, 0);
        fill(name, 5);

        long start =
                get(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(3)))
                                .lowWatermarks()
                                .get(partition))
                        .lowWatermark();

        expect("the log starts", 3L, start);
        expect("earliest", 3L, offset(admin, partition, OffsetSpec.earliest()).offset());
        expect("what is left", numbers(3, 5), values(name, "read_committed"));
    }

    private void delete(Admin admin) throws Exception {
        String name = topic(admin, "deleted", 2);
        fill(name, 4);

        get(admin.deleteTopics(List.of(name)).all());

        await("the topic is gone", () -> !listTopics(admin).contains(name));
        boolean isUnknown = false;
        try {
            get(admin.deleteTopics(List.of(name)).all());
        } catch (ExecutionException failure) {
            isUnknown = failure.getCause() instanceof UnknownTopicOrPartitionException;
        }
        expect("a second delete is told so", true, isUnknown);
        get(admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all());
        expect("made again it is empty", List.of(), values(name, "read_uncommitted"));
    }

    // ------------------------------------------------------------ words the steps are told in

    private interface Step {
        void run() throws Exception;
    }

    private static void step(String name, Step body) throws Exception {
        try {
            body.run();
        } catch (Throwable failure) {
            System.out.println("failed " + name);
            throw failure;
        }
        System.out.println("ok " + name);
        System.out.flush();
    }

    private static void expect(String what, Object wanted, Object found) {
        if (!Objects.equals(wanted, found)) {
            throw new AssertionError(what + ": expected " + wanted + ", found " + found);
        }
    }

    private static void await(String what, BooleanSupplier condition) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within " + PATIENCE.toSeconds() + " s: " + what);
            }
        }
    }

    private static <T> T get(Future<T> future) throws Exception {
        return future.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
    }

    private String unique(String name) {
        return name + "-" + run + "-" + UUID.randomUUID().toString().substring(0, 4);
    }

    private String topic(Admin admin, String name, int partitions) throws Exception {
        String made = unique(name);
        get(admin.createTopics(List.of(new NewTopic(made, partitions, (short) 1))).all());
        return made;
    }

    private static Set<String> listTopics(Admin admin) {
        try {
            return get(admin.listTopics().names());
        } catch (Exception failure) {
            throw new AssertionError(failure);
        }
    }

    private static ConfigEntry setting(Admin admin, String topic, String name) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try {
            return get(admin.describeConfigs(List.of(resource)).all()).get(resource).get(name);
        } catch (Exception failure) {
            throw new AssertionError(failure);
        }
    }

    private static Future<Void> alter(
            Admin admin, String topic, String name, String value, AlterConfigOp.OpType operation) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), operation);
        return admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all();
    }

    private static TransactionDescription describe(Admin admin, String id) {
        try {
            return get(admin.describeTransactions(List.of(id)).description(id));
        } catch (Exception failure) {
            throw new AssertionError(failure);
        }
    }

    private static ListOffsetsResultInfo offset(
            Admin admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return get(admin.listOffsets(Map.of(partition, spec)).partitionResult(partition));
    }

    private static List<String> numbers(int start, int end) {
        return IntStream.range(start, end).mapToObj(Integer::toString).toList();
    }

    private static Set<TopicPartition> partitions(String topic, int count) {
        return IntStream.range(0, count)
                .mapToObj(number -> new TopicPartition(topic, number))
                .collect(Collectors.toSet());
    }

    private void fill(String topic, int count) {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            numbers(0, count).forEach(n -> producer.send(new ProducerRecord<>(topic, n, n)));
        }
    }

    private KafkaProducer<String, String> producer(Map<String, Object> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("delivery.timeout.ms", 60000);
        properties.putAll(settings);
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    /** A producer that has taken over its transactional id; the same name gives the same id. */
    private KafkaProducer<String, String> transactional(String name) {
        KafkaProducer<String, String> producer =
                producer(Map.of("transactional.id", name + "-" + run));
        producer.initTransactions();
        return producer;
    }

    private KafkaConsumer<String, String> consumer(
            String group, String isolation, Map<String, Object> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("isolation.level", isolation);
        properties.put("enable.auto.commit", false);
        properties.put("auto.offset.reset", "earliest");
        if (isRemote) {
            properties.put("group.protocol", "consumer");
        } else {
            // A member notices a rebalance at its next heartbeat.
            properties.put("heartbeat.interval.ms", 300);
        }
        if (group != null) {
            properties.put("group.id", group);
        }
        properties.putAll(settings);
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    private static void poll(KafkaConsumer<String, String> consumer, Collection<String> seen) {
        consumer.poll(POLL).forEach(record -> seen.add(record.value()));
    }

    private static Map<TopicPartition, OffsetAndMetadata> positions(
            KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (TopicPartition partition : consumer.assignment()) {
            positions.put(partition, new OffsetAndMetadata(consumer.position(partition)));
        }
        return positions;
    }

    private Set<String> set(String topic, String isolation) {
        return new TreeSet<>(values(topic, isolation));
    }

    private List<String> values(String topic, String isolation) {
        return read(topic, isolation).stream().map(ConsumerRecord::value).toList();
    }

    /** Everything from the beginning to where this isolation level ends, partition by partition. */
    private List<ConsumerRecord<String, String>> read(String topic, String isolation) {
        try (KafkaConsumer<String, String> consumer = consumer(null, isolation, Map.of())) {
            // A topic that was just made has no partitions until its metadata has come around.
            await("partitions of " + topic, () -> !consumer.partitionsFor(topic).isEmpty());
            List<TopicPartition> all =
                    consumer.partitionsFor(topic).stream()
                            .map(info -> new TopicPartition(topic, info.partition()))
                            .toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            List<ConsumerRecord<String, String>> found = new ArrayList<>();
            await(
                    "the end of " + topic,
                    () -> {
                        consumer.poll(POLL).forEach(found::add);
                        return all.stream().allMatch(p -> consumer.position(p) >= ends.get(p));
                    });
            return found;
        }
    }
}

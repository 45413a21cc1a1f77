import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One client of the black box on the Java client: the sister of client.py, with the same notes.
 *
 * <p>Usage: Client ROLE NAME SERVERS NOTES SEED SOURCE SINK GROUP TIMEOUT_MS PARTITIONS KEYS
 *
 * <p>It ends when told to by SIGTERM, or with exit code 3 by an error after which a program would
 * be restarted.
 */
public final class Client {
    private static final Duration CALL = Duration.ofSeconds(12);

    private final String name;
    private final String servers;
    private final FileChannel notes;
    private final Random chance;
    private final String source;
    private final String sink;
    private final String group;
    private final int timeoutMs;
    private final int partitions;
    private final int keys;
    private final String born;
    private final CountDownLatch over = new CountDownLatch(1);
    private final CountDownLatch ended = new CountDownLatch(1);
    private int instances;
    private int attempts;
    private int values;

    private Client(String[] words) throws IOException {
        name = words[1];
        servers = words[2];
        notes =
                FileChannel.open(
                        Path.of(words[3]), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        chance = new Random(Long.parseLong(words[4]));
        source = words[5];
        sink = words[6];
        group = words[7];
        timeoutMs = Integer.parseInt(words[8]);
        partitions = Integer.parseInt(words[9]);
        keys = Integer.parseInt(words[10]);
        born = name + "#" + ProcessHandle.current().pid();
    }

    public static void main(String[] words) throws IOException {
        Client client = new Client(words);
        Runtime.getRuntime().addShutdownHook(new Thread(client::stop));
        int code = 0;
        try {
            if (words[0].equals("writer")) {
                client.write();
            } else {
                client.copy();
            }
        } catch (KafkaException | IllegalStateException failure) {
            client.note(
                    "trouble", text("client", client.name), text("what", describe(failure)));
            code = 3;
        } catch (Throwable failure) {
            failure.printStackTrace();
            code = 1;
        }
        client.ended.countDown();
        Runtime.getRuntime().halt(code); // an abandoned producer may wait for a broker that is gone
    }

    /** SIGTERM: let the work come to its end. */
    private void stop() {
        over.countDown();
        try {
            ended.await(15, TimeUnit.SECONDS);
        } catch (InterruptedException enough) {
            Thread.currentThread().interrupt();
        }
    }

    private boolean isOver() {
        return over.getCount() == 0;
    }

    // ------------------------------------------------------------ the writer

    /** Transactions of 1–4 sends and polls, one after the other, ended in every way. */
    private void write() throws Exception {
        Instance instance = new Instance();
        try (KafkaConsumer<String, String> consumer = consumer("readers-" + name)) {
            assign(consumer);
            while (!isOver()) {
                Attempt attempt = instance.begin();
                int operations = 1 + chance.nextInt(4);
                for (int n = 0; n < operations; n++) {
                    if (chance.nextInt(4) == 0) {
                        read(consumer, Duration.ofMillis(chance.nextInt(20)));
                    } else {
                        attempt.write();
                    }
                }
                if (chance.nextInt(10) == 0) {
                    assign(consumer);
                }
                int way = chance.nextInt(100);
                if (!end(attempt, way)) {
                    attempt.leaveIfFenced(way < 88);
                    instance.drop();
                    instance = new Instance();
                }
            }
        }
        Attempt left = instance.begin(); // what is left open now, only its timeout will end
        left.write();
        instance.producer.flush();
    }

    private void assign(KafkaConsumer<String, String> consumer) {
        List<TopicPartition> some = new ArrayList<>();
        int first = chance.nextInt(partitions);
        for (int index = first; index < partitions; index++) {
            some.add(new TopicPartition(chance.nextBoolean() ? source : sink, index));
        }
        consumer.assign(some);
        consumer.seekToBeginning(some);
    }

    /** End it in some way; say whether the producer may go on. */
    private boolean end(Attempt attempt, int way) throws Exception {
        if (way < 60) {
            return attempt.commit();
        }
        if (way < 84) {
            return attempt.abort();
        }
        if (way < 87) {
            return false;
        }
        if (way < 88) { // commit about when the transaction times out
            over.await((long) (timeoutMs * (0.8 + 0.4 * chance.nextDouble())), TimeUnit.MILLISECONDS);
            return attempt.commit();
        }
        if (way < 94) { // go on, and commit, after a second instance has taken over
            attempt.flush();
            new Instance().drop();
            attempt.write();
            attempt.commit();
            return false;
        }
        Thread successor = new Thread(this::takeOver); // commit while it takes over
        successor.start();
        Thread.sleep(chance.nextInt(20));
        attempt.commit();
        successor.join();
        return false;
    }

    private void takeOver() {
        try {
            new Instance().drop();
        } catch (RuntimeException failure) {
            note("trouble", text("client", name), text("what", describe(failure)));
        }
    }

    // ------------------------------------------------------------ the copier

    /** Consume, transform, produce; whatever fails begins anew at the committed offsets. */
    private void copy() throws Exception {
        while (!isOver()) {
            Instance instance = new Instance();
            try (KafkaConsumer<String, String> consumer = consumer(group)) {
                consumer.subscribe(List.of(source));
                boolean mayGoOn = true;
                while (!isOver() && mayGoOn) {
                    mayGoOn = copyOnce(consumer, instance);
                }
            }
            instance.drop();
        }
    }

    private boolean copyOnce(KafkaConsumer<String, String> consumer, Instance instance)
            throws Exception {
        List<ConsumerRecord<String, String>> taken = read(consumer, Duration.ofMillis(100));
        if (taken.isEmpty()) {
            return true;
        }
        Attempt attempt = instance.begin();
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (ConsumerRecord<String, String> record : taken) {
            attempt.send(
                    sink, record.partition(), record.key(), record.value() + ">" + attempt.name);
            positions.put(
                    new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
        }
        try {
            instance.producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
        } catch (KafkaException refused) {
            note("trouble", text("client", name), text("what", describe(refused)));
            attempt.abort();
            attempt.leaveIfFenced(true);
            return false;
        }
        if (isOver() || chance.nextInt(10) < 8) {
            boolean mayGoOn = attempt.commit();
            attempt.leaveIfFenced(true);
            return mayGoOn;
        }
        if (chance.nextInt(10) < 7) {
            attempt.abort();
        }
        return false;
    }

    // ------------------------------------------------------------ what both share

    private KafkaConsumer<String, String> consumer(String groupId) {
        return new KafkaConsumer<>(
                Map.of(
                        "bootstrap.servers", servers,
                        "group.id", groupId,
                        "isolation.level", "read_committed",
                        "auto.offset.reset", "earliest",
                        "enable.auto.commit", false,
                        "session.timeout.ms", 6_000,
                        "max.poll.records", 200,
                        "reconnect.backoff.max.ms", 200),
                new StringDeserializer(),
                new StringDeserializer());
    }

    private List<ConsumerRecord<String, String>> read(
            KafkaConsumer<String, String> consumer, Duration timeout) {
        ConsumerRecords<String, String> found = consumer.poll(timeout);
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        found.forEach(records::add);
        if (!records.isEmpty()) {
            StringBuilder rows = new StringBuilder("\"rows\": [");
            for (ConsumerRecord<String, String> record : records) {
                rows.append(rows.charAt(rows.length() - 1) == '[' ? "" : ", ")
                        .append('[')
                        .append(quoted(record.topic()))
                        .append(", " + record.partition() + ", " + record.offset() + ", ")
                        .append(quoted(record.key()) + ", " + quoted(record.value()))
                        .append(']');
            }
            note("reads", text("reader", born), rows.append(']').toString());
        }
        return records;
    }

    /** A producer that has taken the transactional id over. */
    private final class Instance {
        final KafkaProducer<String, String> producer =
                new KafkaProducer<>(
                        Map.of(
                                "bootstrap.servers", servers,
                                "transactional.id", name,
                                "transaction.timeout.ms", timeoutMs,
                                "max.block.ms", CALL.toMillis(),
                                "linger.ms", 0,
                                "delivery.timeout.ms", 30_000,
                                "request.timeout.ms", 10_000,
                                "reconnect.backoff.max.ms", 200),
                        new StringSerializer(),
                        new StringSerializer());
        final String instance;

        Instance() {
            double askedS = System.nanoTime() / 1e9;
            insist(producer::initTransactions);
            synchronized (Client.this) {
                instance = born + "." + ++instances;
            }
            note(
                    "instance",
                    text("id", name),
                    text("instance", instance),
                    String.format(Locale.ROOT, "\"asked\": %.6f", askedS));
        }

        /** Leave it as a crash would: nothing is aborted. */
        void drop() {
            producer.close(Duration.ZERO);
        }

        Attempt begin() {
            return new Attempt(this);
        }
    }

    /** One transaction under way. */
    private final class Attempt {
        final String name;
        private final KafkaProducer<String, String> producer;
        private KafkaException fencing;

        Attempt(Instance instance) {
            name = instance.instance + "/" + ++attempts;
            producer = instance.producer;
            note(
                    "begin",
                    text("attempt", name),
                    text("id", Client.this.name),
                    text("instance", instance.instance));
            producer.beginTransaction();
        }

        void write() {
            int key = chance.nextInt(keys);
            send(source, key % partitions, "k" + key, born + ":" + ++values);
        }

        void send(String topic, int partition, String key, String value) {
            note(
                    "send",
                    text("attempt", name),
                    text("topic", topic),
                    "\"partition\": " + partition,
                    text("key", key),
                    text("value", value));
            try {
                producer.send(
                        new ProducerRecord<>(topic, partition, key, value),
                        (stored, failure) -> {
                            if (failure == null) {
                                note("ack", text("value", value), "\"offset\": " + stored.offset());
                            }
                        });
            } catch (KafkaException refused) {
                note("unsent", text("value", value));
            }
        }

        /** Leave the transactional id to the instance that has taken it over. */
        void leaveIfFenced(boolean isSurprised) {
            if (fencing != null && isSurprised) {
                throw fencing;
            }
        }

        void flush() {
            producer.flush();
        }

        boolean commit() {
            try {
                end("commit", producer::commitTransaction);
                return true;
            } catch (KafkaException failure) {
                return false;
            }
        }

        boolean abort() {
            try {
                end("abort", producer::abortTransaction);
                return true;
            } catch (KafkaException failure) {
                return false;
            }
        }

        private void end(String what, Runnable call) {
            note("ask", text("attempt", name), text("what", what));
            try {
                insist(call);
            } catch (KafkaException failure) {
                fencing = isFencing(failure) ? failure : null;
                note("end", text("attempt", name), text("what", what), text("error", describe(failure)));
                throw failure;
            }
            note("end", text("attempt", name), text("what", what), "\"error\": null");
        }
    }

    /** Call again after a timeout, which leaves the outcome open; a few times at the end. */
    private void insist(Runnable call) {
        int triesLeft = 3;
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException failure) {
                triesLeft -= isOver() ? 1 : 0;
                if (triesLeft == 0) {
                    throw failure;
                }
            }
        }
    }

    private static boolean isFencing(Throwable failure) {
        return failure instanceof ProducerFencedException
                || failure instanceof InvalidProducerEpochException
                || (failure != null && isFencing(failure.getCause()));
    }

    private static String describe(Throwable failure) {
        return failure.getClass().getSimpleName() + ": " + failure.getMessage();
    }

    /** One line, in one call: it is there even if the process is killed in the next moment. */
    private void note(String event, String... facts) {
        String line =
                String.format(
                        Locale.ROOT,
                        "{\"at\": %.6f, %s, %s}%n",
                        System.nanoTime() / 1e9,
                        text("event", event),
                        String.join(", ", facts));
        try {
            notes.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
        } catch (IOException failure) {
            throw new IllegalStateException("cannot write the notes", failure);
        }
    }

    private static String text(String field, String value) {
        return quoted(field) + ": " + quoted(value);
    }

    private static String quoted(String value) {
        return '"' + value.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + '"';
    }
}

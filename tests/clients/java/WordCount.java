import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;

/**
 * A word count and a join of Kafka Streams, exactly once, until SIGTERM.
 *
 * <p>Usage: {@code WordCount.java HOST:PORT NAME DIRECTORY STANDBYS}. Each word of NAME-lines goes
 * to NAME-counts with the number of its occurrences so far; that is joined with the table NAME-table
 * into NAME-joined.
 */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        String name = arguments[1];
        Properties settings = new Properties();
        settings.put("application.id", name);
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[2]);
        settings.put("num.standby.replicas", arguments[3]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", 100);
        // Each update of a count is forwarded, so that one that is lost or doubled can be seen.
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", 6000);
        settings.put("heartbeat.interval.ms", 500);
        settings.put("acceptable.recovery.lag", 0);
        settings.put("replication.factor", 1);
        settings.put("transaction.timeout.ms", 10000);

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(name + "-lines");
        KTable<String, String> kinds = builder.table(name + "-table");
        KStream<String, String> counts =
                lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
                        .groupBy((key, word) -> word)
                        .count()
                        .toStream()
                        .mapValues(String::valueOf);
        counts.to(name + "-counts", Produced.with(Serdes.String(), Serdes.String()));
        counts.join(kinds, (count, kind) -> kind + "=" + count).to(name + "-joined");

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(
                failure -> {
                    failure.printStackTrace();
                    Runtime.getRuntime().halt(1);
                    return null;
                });
        Runtime.getRuntime()
                .addShutdownHook(
                        new Thread(
                                () -> {
                                    streams.close();
                                    ended.countDown();
                                }));
        streams.start();
        ended.await();
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A consumer of many partitions that does what its input says: "read COUNT", "pause PARTITION", "resume PARTITION".
 *
 * <p>Usage: FetchSessions HOST:PORT TOPIC PARTITIONS. Each "read" prints PARTITION:OFFSET of its records, sorted.
 */
public class FetchSessions {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", "200");
        List<TopicPartition> partitions = new ArrayList<>();
        for (int index = 0; index < Integer.parseInt(words[2]); index++) {
            partitions.add(new TopicPartition(words[1], index));
        }
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] order = line.split(" ");
                int number = Integer.parseInt(order[1]);
                switch (order[0]) {
                    case "pause" -> consumer.pause(List.of(partitions.get(number)));
                    case "resume" -> consumer.resume(List.of(partitions.get(number)));
                    default -> System.out.println(String.join(" ", read(consumer, number)));
                }
                System.out.flush();
            }
        }
        System.out.println("closed");
    }

    private static List<String> read(KafkaConsumer<String, String> consumer, int count) {
        List<String> places = new ArrayList<>();
        while (places.size() < count) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                places.add(String.format("%03d:%d", record.partition(), record.offset()));
            }
        }
        Collections.sort(places);
        return places;
    }
}

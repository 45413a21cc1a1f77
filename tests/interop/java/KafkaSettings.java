import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Prints, as JSON, the names of Kafka's broker settings, their defaults, or a file as Kafka reads it. */
public class KafkaSettings {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        if (arguments[0].equals("names")) {
            System.out.println(json.writeValueAsString(new TreeSet<>(KafkaConfig.configDef().names())));
            return;
        }
        if (arguments[0].equals("defaults")) {
            TreeMap<String, String> defaults = new TreeMap<>();
            KafkaConfig.configDef().configKeys().forEach((name, key) -> {
                if (key.hasDefault() && key.defaultValue != null) {
                    defaults.put(name, ConfigDef.convertToString(key.defaultValue, key.type));
                }
            });
            System.out.println(json.writeValueAsString(defaults));
            return;
        }
        Properties properties = new Properties();
        try (var stream = Files.newInputStream(Path.of(arguments[1]))) {
            properties.load(stream);
        }
        System.out.println(json.writeValueAsString(new TreeMap<>(properties)));
    }
}

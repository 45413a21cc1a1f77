import java.io.FileReader;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.KafkaException;

/**
 * Tries doors: for each file of client settings, prints whether Java's client is let in.
 *
 * <p>Usage: {@code java -cp '<kafka-clients jars>' Doors.java FILE...}. A line for each: the file's
 * name, a space, and {@code open} or the simple name of the error.
 */
public final class Doors {
    private static final int PATIENCE_S = 20;

    public static void main(String[] files) throws Exception {
        for (String file : files) {
            Properties settings = new Properties();
            try (FileReader reader = new FileReader(file)) {
                settings.load(reader);
            }
            System.out.println(Path.of(file).getFileName() + " " + knock(settings));
        }
        System.exit(0);
    }

    private static String knock(Properties settings) throws Exception {
        try (Admin admin = Admin.create(settings)) {
            admin.describeCluster().nodes().get(PATIENCE_S, TimeUnit.SECONDS);
            return "open";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        } catch (KafkaException error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            return cause.getClass().getSimpleName();
        }
    }
}

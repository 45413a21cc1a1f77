import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Reads lines of rules and a subject, each in Base64; prints the name that Kafka maps it to. */
public class Principals {
    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(",", -1);
            System.out.println(answer(text(parts[0]), text(parts[1])));
            System.out.flush();
        }
    }

    /** The name in Base64 behind "=", or "none": no rule applies, or Kafka fails. */
    private static String answer(String rules, String subject) {
        try {
            String name = SslPrincipalMapper.fromRules(rules).getName(subject);
            return "=" + Base64.getEncoder().encodeToString(name.getBytes(StandardCharsets.UTF_8));
        } catch (Exception | StackOverflowError error) {
            return "none";
        }
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }
}

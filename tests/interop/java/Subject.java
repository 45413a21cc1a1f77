import java.io.FileInputStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;

/** Prints the subject of each certificate file as Kafka's principals have it. */
public class Subject {
    public static void main(String[] files) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (String file : files) {
            try (FileInputStream stream = new FileInputStream(file)) {
                X509Certificate certificate = (X509Certificate) factory.generateCertificate(stream);
                String name = certificate.getSubjectX500Principal().getName();
                System.out.write((name + "\n").getBytes(StandardCharsets.UTF_8));
            }
        }
        System.out.flush();
    }
}

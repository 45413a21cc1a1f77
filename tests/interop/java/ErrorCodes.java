import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints, as JSON, each error code of Kafka: its number, its name, and whether it is retriable. */
public class ErrorCodes {
    public static void main(String[] arguments) throws Exception {
        List<List<Object>> rows = new ArrayList<>();
        for (Errors error : Errors.values()) {
            rows.add(List.of((int) error.code(), error.name(), error.exception() instanceof RetriableException));
        }
        System.out.println(new ObjectMapper().writeValueAsString(rows));
    }
}

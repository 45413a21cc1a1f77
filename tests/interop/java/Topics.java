import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.Uuid;

/** Prints, as JSON, the number of partitions of a topic: by its id and, in several requests, by its name. */
public class Topics {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        var few = new DescribeTopicsOptions().partitionSizeLimitPerResponse(2);
        var told = new TreeMap<String, Object>();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            Uuid id = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
            told.put("by id", answer(() -> byId(admin, id)));
            told.put("an unknown id", answer(() -> byId(admin, Uuid.randomUuid())));
            told.put("by name, two at a time", answer(() -> byName(admin, topic, few)));
            told.put("an unknown name", answer(() -> byName(admin, topic + "-nowhere", few)));
        }
        System.out.println(new ObjectMapper().writeValueAsString(told));
    }

    private static Collection<TopicDescription> byId(Admin admin, Uuid id) throws Exception {
        return admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().values();
    }

    private static Collection<TopicDescription> byName(Admin admin, String topic, DescribeTopicsOptions options)
            throws Exception {
        return admin.describeTopics(List.of(topic), options).allTopicNames().get().values();
    }

    private static Object answer(Callable<Collection<TopicDescription>> ask) throws Exception {
        try {
            var sizes = new TreeMap<String, Integer>();
            ask.call().forEach(one -> sizes.put(one.name(), one.partitions().size()));
            return sizes;
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }
}

// segmentio/kafka-go, which has no transactions of its own, through its part of the story of
// test_clients.py; its results as JSON.
//
//	client HOST:PORT NAME
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/segmentio/kafka-go"
)

var ctx, stop = context.WithTimeout(context.Background(), 2*time.Minute)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

type byNumber struct{}

func (byNumber) Balance(message kafka.Message, _ ...int) int {
	var n int
	_, err := fmt.Sscanf(string(message.Value), "v%d", &n)
	check(err)
	return n % 3
}

func produce(writer *kafka.Writer, start, end int) {
	messages := []kafka.Message{}
	for n := start; n < end; n++ {
		text := fmt.Sprint(n)
		messages = append(messages, kafka.Message{
			Key: []byte("k" + text), Value: []byte("v" + text),
			Headers: []kafka.Header{{Key: "n", Value: []byte(text)}},
		})
	}
	check(writer.WriteMessages(ctx, messages...))
}

func join(servers, group, topic string) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{servers}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 300 * time.Millisecond, MaxWait: 100 * time.Millisecond,
	})
}

func read(count int, from ...*kafka.Reader) []kafka.Message {
	found := []kafka.Message{}
	for len(found) < count {
		for _, each := range from {
			moment, end := context.WithTimeout(ctx, 100*time.Millisecond)
			message, err := each.FetchMessage(moment)
			end()
			check(ctx.Err())
			if err == nil {
				found = append(found, message)
				check(each.CommitMessages(ctx, message))
			}
		}
	}
	return found
}

func main() {
	defer stop()
	servers, name := os.Args[1], os.Args[2]
	group := name + "-group"
	told := map[string]any{}
	client := &kafka.Client{Addr: kafka.TCP(servers)}
	made, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: name, NumPartitions: 3, ReplicationFactor: 1},
		{Topic: name + "-brief", NumPartitions: 1, ReplicationFactor: 1},
	}})
	check(err)
	check(made.Errors[name])
	for told["partitions"] != 3 {
		metadata, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{name}})
		check(err)
		told["partitions"] = len(metadata.Topics[0].Partitions)
	}
	writer := &kafka.Writer{
		Addr: kafka.TCP(servers), Topic: name, Balancer: byNumber{}, RequiredAcks: kafka.RequireAll,
		Compression: kafka.Snappy, BatchTimeout: 5 * time.Millisecond,
	}
	produce(writer, 0, 30)

	one := join(servers, group, name)
	shown := []string{}
	for _, each := range read(30, one) {
		shown = append(shown, fmt.Sprintf("%d:%d:%s=%s;%s=%s", each.Partition, each.Offset,
			each.Key, each.Value, each.Headers[0].Key, each.Headers[0].Value))
	}
	sort.Strings(shown)
	told["first"] = shown
	offsets, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: group, Topics: map[string][]int{name: {0, 1, 2}},
	})
	check(err)
	committed := []int64{0, 0, 0}
	for _, each := range offsets.Topics[name] {
		committed[each.Partition] = each.CommittedOffset
	}
	told["committed"] = committed

	members := []*kafka.Reader{one, join(servers, group, name)}
	for told["owned"] == nil {
		groups, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
		check(err)
		found := []int{}
		for _, member := range groups.Groups[0].Members {
			for _, topic := range member.MemberAssignments.Topics {
				found = append(found, len(topic.Partitions))
			}
		}
		sort.Ints(found)
		if fmt.Sprint(found) == "[1 2]" {
			told["owned"] = found
		}
	}
	produce(writer, 30, 60)
	second := []string{}
	for _, each := range read(30, members...) {
		second = append(second, string(each.Value))
	}
	sort.Strings(second)
	told["second"] = second
	for _, each := range members {
		check(each.Close())
	}

	groups, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	check(err)
	told["group"] = groups.Groups[0].GroupState
	deleted, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
	check(err)
	check(deleted.Errors[group])
	gone, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{name + "-brief"}})
	check(err)
	told["gone"] = gone.Errors[name+"-brief"] == nil
	check(json.NewEncoder(os.Stdout).Encode(told))
}

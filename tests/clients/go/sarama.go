// sarama through the story of test_clients.py; its results as JSON.
//
//	client HOST:PORT NAME
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const patience = 2 * time.Minute

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.MaxVersion
	made.Producer.Return.Successes = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Producer.Idempotent = true
	made.Net.MaxOpenRequests = 1
	made.Producer.Partitioner = sarama.NewManualPartitioner
	made.Producer.Compression = sarama.CompressionLZ4
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.IsolationLevel = sarama.ReadCommitted
	made.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	made.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
		sarama.NewBalanceStrategyRange(),
	}
	return made
}

// until waits for an effect, which other goroutines have.
func until(what string, holds func() bool) {
	for began := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > patience {
			panic("in vain: " + what)
		}
	}
}

// member consumes in a group, marks what it reads, and knows its partitions.
type member struct {
	group   sarama.ConsumerGroup
	lock    sync.Mutex
	session sarama.ConsumerGroupSession
	records []*sarama.ConsumerMessage
	end     context.CancelFunc
	ended   chan struct{}
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session = session
	return nil
}

func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for record := range c.Messages() {
		m.lock.Lock()
		m.records = append(m.records, record)
		s.MarkMessage(record, "")
		m.lock.Unlock()
	}
	return nil
}

func (m *member) size(topic string) int {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.session == nil {
		return 0
	}
	return len(m.session.Claims()[topic])
}

func (m *member) read() []*sarama.ConsumerMessage {
	m.lock.Lock()
	defer m.lock.Unlock()
	return append([]*sarama.ConsumerMessage{}, m.records...)
}

func join(servers, group, topic string) *member {
	made, err := sarama.NewConsumerGroup([]string{servers}, group, config())
	check(err)
	ctx, end := context.WithCancel(context.Background())
	m := &member{group: made, end: end, ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			if err := made.Consume(ctx, []string{topic}, m); err != nil {
				panic(err)
			}
		}
	}()
	return m
}

func (m *member) leave() {
	m.end()
	<-m.ended
	check(m.group.Close())
}

func sizes(topic string, members ...*member) []int {
	found := []int{}
	for _, each := range members {
		found = append(found, each.size(topic))
	}
	sort.Ints(found)
	return found
}

func values(records []*sarama.ConsumerMessage) []string {
	found := []string{}
	for _, each := range records {
		found = append(found, string(each.Value))
	}
	sort.Strings(found)
	return found
}

func produce(producer sarama.SyncProducer, topic string, start, end int) [][2]int64 {
	sent := []*sarama.ProducerMessage{}
	for n := start; n < end; n++ {
		text := fmt.Sprint(n)
		sent = append(sent, &sarama.ProducerMessage{
			Topic: topic, Partition: int32(n % 3), Key: sarama.StringEncoder("k" + text),
			Value:   sarama.StringEncoder("v" + text),
			Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: []byte(text)}},
		})
	}
	check(producer.SendMessages(sent))
	places := [][2]int64{}
	for _, each := range sent {
		places = append(places, [2]int64{int64(each.Partition), each.Offset})
	}
	sort.Slice(places, func(a, b int) bool {
		return places[a][0]*1000+places[a][1] < places[b][0]*1000+places[b][1]
	})
	return places
}

// readTopic reads so many records of partition 0, without a group.
func readTopic(servers, topic string, level sarama.IsolationLevel, n int) []*sarama.ConsumerMessage {
	settings := config()
	settings.Consumer.IsolationLevel = level
	consumer, err := sarama.NewConsumer([]string{servers}, settings)
	check(err)
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	check(err)
	found := []*sarama.ConsumerMessage{}
	for len(found) < n {
		select {
		case record := <-partition.Messages():
			found = append(found, record)
		case <-time.After(patience):
			panic(fmt.Sprintf("%d records of %d", len(found), n))
		}
	}
	check(consumer.Close())
	return found
}

func transform(servers, name, out string) {
	settings := config()
	settings.Producer.Transaction.ID = name + "-id"
	producer, err := sarama.NewSyncProducer([]string{servers}, settings)
	check(err)
	message := func(text string) *sarama.ProducerMessage {
		return &sarama.ProducerMessage{Topic: out, Value: sarama.StringEncoder(text)}
	}
	for _, text := range []string{"t0", "a0", "t1"} {
		check(producer.BeginTxn())
		_, _, err := producer.SendMessage(message(text))
		check(err)
		if text == "a0" {
			check(producer.AbortTxn())
		} else {
			check(producer.CommitTxn())
		}
	}
	reader := join(servers, name+"-reader", name)
	until("60 records", func() bool { return len(reader.read()) == 60 })
	records := reader.read()
	reader.leave()
	check(producer.BeginTxn())
	for _, text := range values(records) {
		_, _, err := producer.SendMessage(message(strings.ToUpper(text)))
		check(err)
	}
	for _, each := range records {
		check(producer.AddMessageToTxn(each, name+"-copy", nil))
	}
	check(producer.CommitTxn())
	check(producer.Close())
}

func main() {
	servers, name := os.Args[1], os.Args[2]
	out, brief, group := name+"-out", name+"-brief", name+"-group"
	told := map[string]any{}
	admin, err := sarama.NewClusterAdmin([]string{servers}, config())
	check(err)
	for topic, partitions := range map[string]int32{name: 3, out: 1, brief: 1} {
		detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}
		check(admin.CreateTopic(topic, detail, false))
	}
	until("the topics", func() bool {
		found, err := admin.DescribeTopics([]string{name, out})
		check(err)
		told["partitions"] = len(found[0].Partitions)
		return len(found[0].Partitions) == 3 && len(found[1].Partitions) == 1
	})

	producer, err := sarama.NewSyncProducer([]string{servers}, config())
	check(err)
	told["offsets"] = produce(producer, name, 0, 30)

	one := join(servers, group, name)
	until("30 records", func() bool { return len(one.read()) == 30 })
	shown := []string{}
	for _, each := range one.read() {
		shown = append(shown, fmt.Sprintf("%d:%d:%s=%s;%s=%s", each.Partition, each.Offset,
			each.Key, each.Value, each.Headers[0].Key, each.Headers[0].Value))
	}
	sort.Strings(shown)
	told["first"] = shown
	one.session.Commit()
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{name: {0, 1, 2}})
	check(err)
	committed := []int64{}
	for partition := int32(0); partition < 3; partition++ {
		committed = append(committed, offsets.GetBlock(name, partition).Offset)
	}
	told["committed"] = committed

	other := join(servers, group, name)
	until("two owners", func() bool { return fmt.Sprint(sizes(name, one, other)) == "[1 2]" })
	told["owned"] = sizes(name, one, other)
	produce(producer, name, 30, 60)
	until("60 records", func() bool { return len(one.read())+len(other.read()) >= 60 })
	told["second"] = values(append(one.read()[30:], other.read()...))
	one.leave()
	other.leave()
	check(producer.Close())

	transform(servers, name, out)
	told["transformed"] = values(readTopic(servers, out, sarama.ReadCommitted, 62))
	told["all"] = len(readTopic(servers, out, sarama.ReadUncommitted, 63))

	groups, err := admin.DescribeConsumerGroups([]string{group})
	check(err)
	told["group"] = groups[0].State
	check(admin.DeleteConsumerGroup(group))
	check(admin.DeleteTopic(brief))
	until("the end of a topic", func() bool {
		topics, err := admin.ListTopics()
		check(err)
		_, hasTopic := topics[brief]
		return !hasTopic
	})
	listed, err := admin.ListConsumerGroups()
	check(err)
	_, hasGroup := listed[group]
	told["gone"] = !hasGroup
	check(json.NewEncoder(os.Stdout).Encode(told))
}

// franz-go through the story of test_clients.py; its results as JSON.
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

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var ctx, stop = context.WithTimeout(context.Background(), 2*time.Minute)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func client(servers string, options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(servers))...)
	check(err)
	return made
}

// member is a consumer of a group, and the partitions that it owns.
type member struct {
	*kgo.Client
	lock  sync.Mutex
	owned map[int32]bool
}

func join(servers, group, topic string, options ...kgo.Opt) *member {
	made := &member{owned: map[int32]bool{}}
	note := func(owns bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, places map[string][]int32) {
			made.lock.Lock()
			defer made.lock.Unlock()
			for _, partition := range places[topic] {
				if owns {
					made.owned[partition] = true
				} else {
					delete(made.owned, partition)
				}
			}
		}
	}
	made.Client = client(servers, append(options,
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	return made
}

func (m *member) size() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return len(m.owned)
}

func sizes(members []*member) []int {
	found := []int{}
	for _, each := range members {
		found = append(found, each.size())
	}
	sort.Ints(found)
	return found
}

// poll returns the records that come within a moment.
func poll(from *kgo.Client) []*kgo.Record {
	moment, end := context.WithTimeout(ctx, 100*time.Millisecond)
	defer end()
	fetches := from.PollFetches(moment)
	check(ctx.Err())
	return fetches.Records()
}

func read(count int, from ...*kgo.Client) []*kgo.Record {
	found := []*kgo.Record{}
	for len(found) < count {
		for _, each := range from {
			found = append(found, poll(each)...)
		}
	}
	return found
}

func values(records []*kgo.Record) []string {
	found := []string{}
	for _, each := range records {
		found = append(found, string(each.Value))
	}
	sort.Strings(found)
	return found
}

func produce(producer *kgo.Client, topic string, start, end int) [][2]int64 {
	records := []*kgo.Record{}
	for n := start; n < end; n++ {
		text := fmt.Sprint(n)
		records = append(records, &kgo.Record{
			Topic: topic, Partition: int32(n % 3), Key: []byte("k" + text), Value: []byte("v" + text),
			Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(text)}},
		})
	}
	check(producer.ProduceSync(ctx, records...).FirstErr())
	places := [][2]int64{}
	for _, each := range records {
		places = append(places, [2]int64{int64(each.Partition), each.Offset})
	}
	sort.Slice(places, func(a, b int) bool {
		return places[a][0]*1000+places[a][1] < places[b][0]*1000+places[b][1]
	})
	return places
}

func transform(servers, name, out string) {
	copier, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(servers), kgo.TransactionalID(name+"-id"), kgo.ConsumerGroup(name+"-copy"),
		kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets())
	check(err)
	for _, text := range []string{"t0", "a0", "t1"} {
		check(copier.Begin())
		check(copier.ProduceSync(ctx, &kgo.Record{Topic: out, Value: []byte(text)}).FirstErr())
		ended, err := copier.End(ctx, kgo.TransactionEndTry(text[0] == 't'))
		check(err)
		if ended != (text[0] == 't') {
			panic("the transaction of " + text + " ended otherwise")
		}
	}
	check(copier.Begin())
	for _, each := range read(60, copier.Client()) {
		value := []byte(strings.ToUpper(string(each.Value)))
		copier.Produce(ctx, &kgo.Record{Topic: out, Value: value}, nil)
	}
	ended, err := copier.End(ctx, kgo.TryCommit)
	check(err)
	if !ended {
		panic("the copy was not committed")
	}
	copier.Close()
}

func main() {
	defer stop()
	servers, name := os.Args[1], os.Args[2]
	out, brief, group := name+"-out", name+"-brief", name+"-group"
	told := map[string]any{}
	producer := client(servers, kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	admin := kadm.NewClient(producer)
	for topic, partitions := range map[string]int32{name: 3, out: 1, brief: 1} {
		_, err := admin.CreateTopic(ctx, partitions, 1, nil, topic)
		check(err)
	}
	described, err := admin.ListTopics(ctx, name)
	check(err)
	told["partitions"] = len(described[name].Partitions)
	told["offsets"] = produce(producer, name, 0, 30)

	one := join(servers, group, name)
	shown := []string{}
	for _, each := range read(30, one.Client) {
		shown = append(shown, fmt.Sprintf("%d:%d:%s=%s;%s=%s", each.Partition, each.Offset,
			each.Key, each.Value, each.Headers[0].Key, each.Headers[0].Value))
	}
	sort.Strings(shown)
	told["first"] = shown
	check(one.CommitUncommittedOffsets(ctx))
	offsets, err := admin.FetchOffsets(ctx, group)
	check(err)
	committed := []int64{}
	for partition := int32(0); partition < 3; partition++ {
		at, _ := offsets.Lookup(name, partition)
		committed = append(committed, at.At)
	}
	told["committed"] = committed

	members := []*member{one, join(servers, group, name)}
	for fmt.Sprint(sizes(members)) != "[1 2]" {
		for _, each := range members {
			if len(poll(each.Client)) > 0 {
				panic("nothing is new")
			}
		}
	}
	told["owned"] = sizes(members)
	produce(producer, name, 30, 60)
	told["second"] = values(read(30, members[0].Client, members[1].Client))
	for _, each := range members {
		check(each.CommitUncommittedOffsets(ctx))
		each.Close()
	}

	transform(servers, name, out)
	beginning := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	sure := kgo.FetchIsolationLevel(kgo.ReadCommitted())
	told["transformed"] = values(read(62, client(servers, kgo.ConsumeTopics(out), beginning, sure)))
	told["all"] = len(read(63, client(servers, kgo.ConsumeTopics(out), beginning)))

	groups, err := admin.DescribeGroups(ctx, group)
	check(err)
	told["group"] = groups[group].State
	_, err = admin.DeleteGroups(ctx, group)
	check(err)
	_, err = admin.DeleteTopics(ctx, brief)
	check(err)
	for { // a controller answers before the broker knows it
		topics, err := admin.ListTopics(ctx)
		check(err)
		if !topics.Has(brief) {
			break
		}
	}
	listed, err := admin.ListGroups(ctx)
	check(err)
	told["gone"] = !strings.Contains(fmt.Sprint(listed.Groups()), group)
	check(json.NewEncoder(os.Stdout).Encode(told))
}

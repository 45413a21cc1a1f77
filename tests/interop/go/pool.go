// Transactions of version 1 by segmentio/kafka-go, whose client has a pool of connections.
//
// Usage: pool HOST:PORT TOPIC PRODUCERS TRANSACTIONS. Each of the producers joins the topic's
// partition 0 and commits, so many times, and all share one client. Prints the number of
// transactions that failed, and the number of connections that were opened.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
)

const patience = 2 * time.Minute

func main() {
	address, topic := kafka.TCP(os.Args[1]), os.Args[2]
	producers, transactions := number(os.Args[3]), number(os.Args[4])
	var opened, failed atomic.Int64
	dialer := net.Dialer{}
	dial := func(ctx context.Context, network, to string) (net.Conn, error) {
		opened.Add(1)
		return dialer.DialContext(ctx, network, to)
	}
	client := &kafka.Client{
		Addr: address, Timeout: patience, Transport: &kafka.Transport{Dial: dial},
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	var running sync.WaitGroup
	for n := range producers {
		running.Add(1)
		go func() {
			defer running.Done()
			id := fmt.Sprintf("%s-%d", topic, n)
			started, err := client.InitProducerID(ctx, &kafka.InitProducerIDRequest{
				TransactionalID: id, TransactionTimeoutMs: 60000,
			})
			exitOn(err)
			exitOn(started.Error)
			for range transactions {
				if err := transact(ctx, client, id, topic, started.Producer); err != nil {
					fmt.Fprintln(os.Stderr, id, err)
					failed.Add(1)
				}
			}
		}()
	}
	running.Wait()
	fmt.Println(failed.Load(), opened.Load())
}

func transact(
	ctx context.Context, client *kafka.Client, id, topic string, producer *kafka.ProducerSession,
) error {
	added, err := client.AddPartitionsToTxn(ctx, &kafka.AddPartitionsToTxnRequest{
		TransactionalID: id,
		ProducerID:      producer.ProducerID,
		ProducerEpoch:   producer.ProducerEpoch,
		Topics:          map[string][]kafka.AddPartitionToTxn{topic: {{Partition: 0}}},
	})
	if err != nil {
		return err
	}
	if err := added.Topics[topic][0].Error; err != nil {
		return err
	}
	ended, err := client.EndTxn(ctx, &kafka.EndTxnRequest{
		TransactionalID: id,
		ProducerID:      producer.ProducerID,
		ProducerEpoch:   producer.ProducerEpoch,
		Committed:       true,
	})
	if err != nil {
		return err
	}
	return ended.Error
}

func number(text string) int {
	parsed, err := strconv.Atoi(text)
	exitOn(err)
	return parsed
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

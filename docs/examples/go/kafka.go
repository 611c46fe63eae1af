package main

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// openLog returns a producer with what the promises rest on: rule 4.
func openLog(topic string) (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(strings.Split(setting("SEXTON_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092"), ",")...),
		kgo.DefaultProduceTopic(topic),
		kgo.ClientID("emit-go"),
		kgo.RequiredAcks(kgo.AllISRAcks()), // idempotent too, unless that is switched off
		// Kafka's murmur2 of the key, as the SDK: all intents of a tenant stand in one partition.
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ProducerBatchCompression(kgo.Lz4Compression()),
		kgo.RecordDeliveryTimeout(30*time.Second),
	)
}

// write returns where the intent stands, once all in-sync replicas have it.
func write(ctx context.Context, log *kgo.Client, intent Intent, value []byte) (int32, int64, error) {
	record := &kgo.Record{
		Key:   []byte(intent.Tenant),
		Value: value,
		Headers: []kgo.RecordHeader{
			{Key: "sexton-type", Value: []byte("DeletionIntent")},
			{Key: "intent-id", Value: []byte(intent.IntentID)},
			{Key: "tenant", Value: []byte(intent.Tenant)},
		},
	}
	if err := log.ProduceSync(ctx, record).FirstErr(); err != nil {
		return 0, 0, err
	}
	return record.Partition, record.Offset, nil
}

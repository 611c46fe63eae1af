// Command emit is a service that asks Sexton for deletions without its SDK; docs/wire.md has the rules by number.
//
// It attaches a tenant, has the index written, and emits one intent guarded by the attachment's generation and
// one of a promise. It prints a line of JSON for each that Kafka has acknowledged.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/google/uuid"
)

type arguments struct {
	node, tenant, bucket, schema, putIndex, operation string
	unlinked, givenUp                                 []string
}

type emitted struct {
	IntentID   string `json:"intent_id"`
	Guard      string `json:"guard"`
	Generation int64  `json:"generation,omitempty"`
	Partition  int32  `json:"partition"`
	Offset     int64  `json:"offset"`
}

func main() {
	var args arguments
	flag.StringVar(&args.node, "node", "", "name by which the issuer knows this process' place")
	flag.StringVar(&args.tenant, "tenant", "", "whose objects these are")
	flag.StringVar(&args.bucket, "bucket", "", "where the keys are")
	flag.StringVar(&args.schema, "schema", "deletion_intent.v3.avsc", "the intent's schema")
	flag.StringVar(&args.putIndex, "put-index", "", "command that ends with 0 once the store has acknowledged the index")
	flag.StringVar(&args.operation, "operation", "", "the decision by which keys are given up for good")
	flag.Func("unlinked", "key that the index no longer names (repeat)", appendTo(&args.unlinked))
	flag.Func("given-up", "key that its owner has given up for good (repeat)", appendTo(&args.givenUp))
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, "emit:", err)
		os.Exit(1)
	}
}

func appendTo(keys *[]string) func(string) error {
	return func(key string) error {
		*keys = append(*keys, key)
		return nil
	}
}

func run(ctx context.Context, args arguments) error {
	topic := setting("SEXTON_TOPIC_PREFIX", "sexton.") + "intents"
	framing, err := openFraming(ctx, args.schema, topic)
	if err != nil {
		return err
	}
	log, err := openLog(topic)
	if err != nil {
		return err
	}
	defer log.Close()

	// Rule 1: a generation of one's own, before the index is read.
	generation, err := attach(ctx, args.node, args.tenant)
	if err != nil {
		return err
	}
	intents := []Intent{}
	if len(args.unlinked) > 0 {
		guard := GenerationGuard{Tenant: args.tenant, Generation: generation}
		intents = append(intents, newIntent(args, guard, args.unlinked))
	}
	if len(args.givenUp) > 0 {
		intents = append(intents, newIntent(args, PromiseGuard{Operation: args.operation}, args.givenUp))
	}
	// Rule 2: everything that can be wrong is found before the index is written.
	values := make([][]byte, len(intents))
	for i, intent := range intents {
		if values[i], err = framing.encode(intent); err != nil {
			return err
		}
	}
	// Rule 3: the index first, durably. If its fate is unknown nothing is emitted under this generation any more.
	if err := exec.CommandContext(ctx, "sh", "-c", args.putIndex).Run(); err != nil {
		return fmt.Errorf("nobody knows whether the index was written, nothing is emitted: %w", err)
	}
	for i, intent := range intents {
		partition, offset, err := write(ctx, log, intent, values[i])
		if err != nil {
			return err
		}
		line := emitted{IntentID: intent.IntentID, Guard: "promise", Partition: partition, Offset: offset}
		if guard, ok := intent.Guards[0].(GenerationGuard); ok {
			line.Guard, line.Generation = "generation", guard.Generation
		}
		if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
			return err
		}
	}
	return nil
}

func newIntent(args arguments, guard any, keys []string) Intent {
	return Intent{
		IntentID:  uuid.NewString(),
		Tenant:    args.tenant,
		EmittedAt: time.Now().UTC().Truncate(time.Microsecond),
		Emitter:   args.node,
		Guards:    []any{guard},
		Action:    DeleteObjects{Bucket: args.bucket, Phases: [][]string{keys}, Mode: "hide"},
		Vetoes:    []any{},
	}
}

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

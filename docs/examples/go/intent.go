package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hamba/avro/v2"
)

// Intent has the fields of the schema DeletionIntent, version 3.
type Intent struct {
	IntentID  string    `avro:"intent_id"`
	Tenant    string    `avro:"tenant"`
	EmittedAt time.Time `avro:"emitted_at"`
	Emitter   string    `avro:"emitter"`
	Guards    []any     `avro:"guards"`
	Action    any       `avro:"action"`
	ReplayOf  *ReplayOf `avro:"replay_of"`
	Vetoes    []any     `avro:"vetoes"`
}

// ReplayOf is never set by a service.
type ReplayOf struct {
	Topic     string  `avro:"topic"`
	TopicID   string  `avro:"topic_id"`
	Partition int32   `avro:"partition"`
	Offset    int64   `avro:"offset"`
	IntentID  *string `avro:"intent_id"`
}

// GenerationGuard holds while the attachment's generation is the newest, as of the intent's place in the topic.
type GenerationGuard struct {
	Tenant         string  `avro:"tenant"`
	Generation     int64   `avro:"generation"`
	Node           *string `avro:"node"`
	NodeGeneration *int64  `avro:"node_generation"`
}

// PromiseGuard says that the owner has given the keys up for good.
type PromiseGuard struct {
	Operation string `avro:"operation"`
}

// DeleteObjects names the keys in phases; one starts when the one before it is acknowledged gone.
type DeleteObjects struct {
	Bucket           string     `avro:"bucket"`
	Phases           [][]string `avro:"phases"`
	Mode             string     `avro:"mode"`
	BypassGovernance bool       `avro:"bypass_governance"`
	PauseS           int64      `avro:"pause_s"`
}

// wire writes arrays in one block without its size, as the SDK does; readers take the other form too.
var wire = avro.Config{DisableBlockSizeHeader: true, BlockLength: 1 << 20}.Freeze()

func init() {
	wire.Register("sexton.GenerationGuard", GenerationGuard{})
	wire.Register("sexton.PromiseGuard", PromiseGuard{})
	wire.Register("sexton.DeleteObjects", DeleteObjects{})
}

const (
	mostNameBytes = 512
	mostKeyBytes  = 1024
	mostBytes     = 1_000_000 // of a value: below the topic's 1 MiB, with its key and headers
)

var bucketName = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._-]{1,254}\z`)

// check refuses what the reaper would only make a dead letter of: rule 2.
func (intent Intent) check() error {
	if n := utf8.RuneCountInString(intent.IntentID); n < 1 || n > mostNameBytes {
		return fmt.Errorf("an intent id has 1 to %d characters: %d", mostNameBytes, n)
	}
	if err := checkText("a tenant", intent.Tenant, mostNameBytes); err != nil {
		return err
	}
	if len(intent.Guards) == 0 {
		return fmt.Errorf("an intent needs a guard")
	}
	for _, guard := range intent.Guards {
		if promise, ok := guard.(PromiseGuard); ok && promise.Operation == "" {
			return fmt.Errorf("a promise needs an operation")
		}
	}
	action, ok := intent.Action.(DeleteObjects)
	if !ok {
		return fmt.Errorf("this program deletes objects only")
	}
	if !bucketName.MatchString(action.Bucket) {
		return fmt.Errorf("not a bucket's name: %q", action.Bucket)
	}
	if len(action.Phases) == 0 {
		return fmt.Errorf("an intent needs a phase")
	}
	for _, phase := range action.Phases {
		if len(phase) == 0 {
			return fmt.Errorf("a phase needs a key")
		}
		for _, key := range phase {
			if err := checkText("a key", key, mostKeyBytes); err != nil {
				return err
			}
			if strings.HasPrefix(key, "/") || strings.Contains(key, "://") {
				return fmt.Errorf("a path or a URI is hardly a key: %q", key)
			}
		}
	}
	return nil
}

func checkText(what, text string, most int) error {
	if len(text) < 1 || len(text) > most || !utf8.ValidString(text) {
		return fmt.Errorf("%s has 1 to %d bytes of UTF-8: %.80q", what, most, text)
	}
	return nil
}

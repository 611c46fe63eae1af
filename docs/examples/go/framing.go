package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/hamba/avro/v2"
)

// versionThree starts a value without a registry: C3 01, and the fingerprint of the schema that Intent has the
// fields of. It is not computed here, as this library's canonical form keeps logical types, and Avro's does not.
var versionThree = []byte{0xc3, 0x01, 0x3f, 0x51, 0x13, 0x29, 0x14, 0x10, 0x73, 0x09}

// framing writes values: a header that names the schema, then the Avro body, by rule 5.
type framing struct {
	schema avro.Schema
	header []byte
}

// openFraming reads the schema; with a registry its header is 00 and the id, else C3 01 and the fingerprint.
func openFraming(ctx context.Context, file, topic string) (*framing, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	schema, err := avro.ParseBytes(text)
	if err != nil {
		return nil, err
	}
	registry := os.Getenv("SEXTON_SCHEMA_REGISTRY_URL")
	if registry == "" {
		return &framing{schema, versionThree}, nil
	}
	id, err := register(ctx, registry, topic+"-value", string(text))
	if err != nil {
		return nil, err
	}
	return &framing{schema, binary.BigEndian.AppendUint32([]byte{0}, id)}, nil
}

// register returns the id of the schema under the subject, as Confluent's interface has it.
func register(ctx context.Context, registry, subject, text string) (uint32, error) {
	body, err := json.Marshal(map[string]string{"schema": text, "schemaType": "AVRO"})
	if err != nil {
		return 0, err
	}
	address := registry + "/subjects/" + url.PathEscape(subject) + "/versions"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	var registered struct {
		ID uint32 `json:"id"`
	}
	if response.StatusCode != http.StatusOK || json.Unmarshal(reply, &registered) != nil {
		return 0, fmt.Errorf("the schema registry says %d: %.200s", response.StatusCode, reply)
	}
	return registered.ID, nil
}

func (f *framing) encode(intent Intent) ([]byte, error) {
	if err := intent.check(); err != nil {
		return nil, err
	}
	body, err := wire.Marshal(f.schema, intent)
	if err != nil {
		return nil, err
	}
	value := append(append([]byte{}, f.header...), body...)
	if len(value) > mostBytes {
		return nil, fmt.Errorf("an intent has at most %d bytes: %d: name fewer keys", mostBytes, len(value))
	}
	return value, nil
}

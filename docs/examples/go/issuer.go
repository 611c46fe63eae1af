package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"
)

// attach asks the issuer for a generation of one's own. A retry has the same request id: one call is carried out
// once, however often it is sent.
func attach(ctx context.Context, node, tenant string) (int64, error) {
	id, err := uuid.NewV7() // it carries its time, so that the issuer can forget the oldest
	if err != nil {
		return 0, err
	}
	body, err := json.Marshal(map[string]string{"node": node, "tenant": tenant, "request_id": id.String()})
	if err != nil {
		return 0, err
	}
	for {
		generation, again, err := ask(ctx, body)
		if err == nil || !again {
			return generation, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return 0, err
		}
	}
}

// ask says beside the answer whether asking again may help: nothing is known, or the issuer cannot answer now.
func ask(ctx context.Context, body []byte) (int64, bool, error) {
	address := setting("SEXTON_ISSUER_URL", "http://127.0.0.1:8350") + "/v1/attach"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, false, err
	}
	request.Header.Set("Content-Type", "application/json")
	if token := os.Getenv("SEXTON_ISSUER_TOKEN"); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, ctx.Err() == nil, err
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, true, err
	}
	var answer struct {
		Generation int64  `json:"generation"`
		Type       string `json:"type"`
		Detail     string `json:"detail"`
	}
	if err := json.Unmarshal(reply, &answer); err != nil {
		return 0, response.StatusCode >= 500, fmt.Errorf("not the issuer's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK || answer.Generation < 1 {
		err := fmt.Errorf("the issuer says %d %s: %s", response.StatusCode, answer.Type, answer.Detail)
		return 0, response.StatusCode >= 500, err
	}
	return answer.Generation, false, nil
}

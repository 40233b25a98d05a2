package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Verdicts that end a question.
const (
	allow = "allow"
	deny  = "deny"
)

// gateway is the way to Countersign: the agent speaks with a runtime's token, and hears replies with a
// subscriber's.
type gateway struct {
	url, speaks, hears string
}

const (
	answerTimeout = 30 * time.Second
	largestAnswer = 1 << 20
	hearAgain     = time.Second // after the stream of replies is lost
)

// answer is an answer of the gateway.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// post sends a document and returns the answer.
func (g gateway) post(ctx context.Context, path string, body any) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+path, bytes.NewReader(text))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+g.speaks)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	read, err := io.ReadAll(io.LimitReader(res.Body, largestAnswer))
	return answer{res.StatusCode, res.Header, read}, err
}

// publish puts an event on the log; it is durable when publish returns.
func (g gateway) publish(ctx context.Context, e event) error {
	a, err := g.post(ctx, "/v1/events/aaep", e)
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("an event was not stored: status %d: %s", a.status, a.body)
	}
	return err
}

// permission is an allow that is not checked yet.
type permission struct{ receipt, key string }

// admit asks whether a call may run. An allow is none before check has accepted its permission.
func (g gateway) admit(ctx context.Context, call event) (verdict string, allowed permission, err error) {
	a, err := g.post(ctx, "/v1/admit/aaep", call)
	if err != nil {
		return "", allowed, err
	}
	verdict = a.header.Get("Countersign-Verdict")
	switch {
	case verdict == "":
		return "", allowed, fmt.Errorf("no verdict: status %d: %s", a.status, a.body)
	case verdict == allow && a.status != http.StatusOK:
		verdict = deny
	}
	return verdict, permission{a.header.Get("Countersign-Receipt"), a.header.Get("Countersign-Key")}, nil
}

// check holds a permission against the call that runs next. This agent cannot check signatures, so it believes the
// gateway (docs/gateway.md, Receipts). It remembers no nonces: it makes a call's id itself, and runs the call once.
func (g gateway) check(ctx context.Context, allowed permission, session string, call event) error {
	a, err := g.post(ctx, "/v1/receipts:verify", event{
		"receipt": allowed.receipt, "key": allowed.key, "call": event{"session": session, "tool_call_id": call["tool_call_id"], "tool": call["tool"]},
	})
	if err != nil {
		return err
	}
	var checked struct {
		Valid bool `json:"valid"`
	}
	if a.status != http.StatusOK || json.Unmarshal(a.body, &checked) != nil || !checked.Valid {
		return fmt.Errorf("the receipt does not hold: status %d: %s", a.status, a.body)
	}
	return nil
}

// reply is a user's reply, as far as this agent reads it.
type reply struct {
	Type     string `json:"type"`
	Token    string `json:"reply_token"`
	Response any    `json:"response"`
}

// hearReplies hands on the replies of all users, once each and across lost connections, until ctx ends. It
// closes hearing once it misses none.
func (g gateway) hearReplies(ctx context.Context, hearing chan<- struct{}, handle func(reply)) error {
	last := ""
	for begun := false; ; {
		err := g.hearStream(ctx, &last, func() {
			if !begun {
				close(hearing)
			}
			begun = true
		}, handle)
		switch {
		case ctx.Err() != nil:
			return nil
		case !begun:
			return fmt.Errorf("the replies cannot be heard: %w", err)
		}
		select {
		case <-time.After(hearAgain):
		case <-ctx.Done():
		}
	}
}

// hearStream reads one stream. last is the id of the last event, behind which the next stream goes on.
func (g gateway) hearStream(ctx context.Context, last *string, begun func(), handle func(reply)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+"/v1/follow/aaep", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+g.hears)
	if *last != "" {
		req.Header.Set("Last-Event-ID", *last)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, largestAnswer)
	for id, data := *last, ""; lines.Scan(); {
		begun() // the first line names the position
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "data":
			data = value
		case "": // the end of an event, or of a sign of life
			var r reply
			if json.Unmarshal([]byte(data), &r) == nil && r.Token != "" && strings.HasSuffix(r.Type, ".reply") {
				handle(r)
			}
			*last, data = id, ""
		}
	}
	return errors.Join(lines.Err(), errors.New("the stream ended"))
}

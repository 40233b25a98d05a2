package streams

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
)

// Answers of STREAM.MSG.DELETE if the message does not exist.
const (
	codeSequenceNotFound = 10043
	textNoMessage        = "no message found"
)

// Erase deletes one message from a stream and overwrites it on disk (the server writes random
// bytes in its place before it answers). Other sequences do not change. A missing message is
// no error; erased reports whether there was one.
//
// A server that encrypts its store does not overwrite: the encrypted bytes stay until the server
// rewrites their block. Blocks that the server has replaced are free space on the disk, like
// every deleted file.
func Erase(ctx context.Context, nc *nats.Conn, stream string, seq uint64) (erased bool, err error) {
	req, err := json.Marshal(map[string]any{"seq": seq})
	if err != nil {
		return false, err
	}
	msg, err := request(ctx, nc, &nats.Msg{Subject: "$JS.API.STREAM.MSG.DELETE." + stream, Data: req}, answerTimeout)
	if err != nil {
		return false, fmt.Errorf("erasing message %d of stream %s: %w", seq, stream, err)
	}
	var resp struct {
		Error   *apiError `json:"error"`
		Success bool      `json:"success"`
	}
	if err := json.Unmarshal(msg.Data, &resp); err != nil {
		return false, fmt.Errorf("erasing message %d of stream %s: the answer is not JSON", seq, stream)
	}
	switch {
	case resp.Error == nil:
		return resp.Success, nil
	case resp.Error.ErrCode == codeSequenceNotFound, resp.Error.Description == textNoMessage:
		return false, nil
	}
	return false, fmt.Errorf("erasing message %d of stream %s: %w", seq, stream, resp.Error)
}

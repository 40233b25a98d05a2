package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
)

// ErrSealed says that a stream was made before there was erasure: the server
// refuses to delete from it, and to change that.
var ErrSealed = errors.New("streams: nothing can be deleted from this stream")

// ErasableStreams lists the streams beside the log that messages can be taken out of.
func ErasableStreams() []string { return slices.Clone(erasableStreams) }

// What STREAM.MSG.DELETE answers when there is nothing to delete, and when
// nothing may be.
const (
	codeSequenceNotFound = 10043
	codeDeleteFailed     = 10057
	textNotPermitted     = "message delete not permitted"
	textNoMessage        = "no message found"
)

// Erase takes one message out of a stream and overwrites it on the disk (the
// server writes random bytes in its place before it answers). Sequences stay as
// they are. It is no error if there is no such message any more; erased says
// whether there was. ErrSealed: nothing can be deleted from the stream.
//
// A server that encrypts its store does not overwrite: the bytes stay, encrypted,
// until it rewrites the block that they are in. Blocks that the server replaced
// are free space on the disk, like every deleted file.
func Erase(ctx context.Context, nc *nats.Conn, stream string, seq uint64) (erased bool, err error) {
	req, err := json.Marshal(map[string]any{"seq": seq})
	if err != nil {
		return false, err
	}
	msg, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.DELETE."+stream, req)
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
	case resp.Error.ErrCode == codeDeleteFailed && resp.Error.Description == textNotPermitted:
		return false, fmt.Errorf("%w: %s (it was made before there was erasure, and the server does not let that be changed)", ErrSealed, stream)
	}
	return false, fmt.Errorf("erasing message %d of stream %s: %w", seq, stream, resp.Error)
}

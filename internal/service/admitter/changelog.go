package admitter

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/streams"
)

// changeLog writes the changes of one kind of deciding state to the log in order, and keeps what
// could not be written for a retry. One goroutine uses it.
type changeLog struct {
	s       *service
	kind    string          // of the control record, for example events.ControlPolicy
	pending []pendingChange // not in the log yet, oldest first
	blocked bool            // progress counts this log as unrecorded
}

type pendingChange struct {
	id     string
	at     time.Time
	record any
}

// writerName names this admitter in its change records.
func writerName() string { return fmt.Sprintf("admitter-%d", os.Getpid()) }

// latestRecord is the latest record of a change log, the zero value if there is none.
func latestRecord[T any](ctx context.Context, l *changeLog) (record T, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.s.flags.Timeout)
	defer cancel()
	stream := l.s.flags.Stream
	m, err := streams.LastBySubject(ctx, l.s.js, stream, l.s.space.Control(stream, l.kind))
	if err != nil || m == nil {
		return record, err
	}
	return events.DecodeRecord[T](m.Body)
}

// addChange queues the record of a change to a revision.
func (l *changeLog) addChange(revision uint64, record any) {
	now := time.Now()
	l.pending = append(l.pending, pendingChange{fmt.Sprintf("%s-%s-%d-%d", writerName(), l.kind, revision, now.UnixNano()), now, record})
}

// recordPending writes the queued records and reports a failure in log and health. Until it
// succeeds no decision is recorded: the old state must not decide any more, and the new state
// must not decide before the log has it.
func (l *changeLog) recordPending(ctx context.Context) {
	defer func() {
		switch behind := len(l.pending) > 0; {
		case behind && !l.blocked:
			l.s.progress.suspendRecords()
		case !behind && l.blocked:
			l.s.progress.resumeRecords()
		}
		l.blocked = len(l.pending) > 0
	}()
	for len(l.pending) > 0 {
		if err := l.writeChange(ctx, l.pending[0]); err != nil {
			problem := "a change of " + l.kind + " could not be recorded yet"
			l.s.env.Log.Error().Err(err).Msg(problem)
			l.s.env.Health.Set(l.kind+"_log", problem)
			return
		}
		l.pending = l.pending[1:]
	}
	l.s.env.Health.Set(l.kind+"_log", "")
}

func (l *changeLog) writeChange(ctx context.Context, c pendingChange) error {
	body, err := events.Encode(c.record)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.s.flags.Timeout)
	defer cancel()
	stream := l.s.flags.Stream
	return streams.StoreLinked(ctx, l.s.js, stream, controlMessage(l.s.space, stream, l.kind, c.id, c.at, body))
}

// controlMessage is the log message of one of the admitter's control records.
func controlMessage(space subject.Space, stream, kind, id string, at time.Time, record []byte) streams.Msg {
	header := cloudevents.Binary(cloudevents.Attributes{ID: id, Source: sourceName(stream), Type: events.TypeControl, Subject: kind, Time: at})
	return streams.Msg{Subject: space.Control(stream, kind), Header: header, Body: record}
}

// sourceName is the source of an admitter's records.
func sourceName(stream string) string { return "/countersign/" + stream + "/admitter" }

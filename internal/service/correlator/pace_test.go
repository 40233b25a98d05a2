package correlator

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	const ms = time.Millisecond
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name    string
		since   time.Duration // the last write began; 0: there was none
		outputs int
		coming  int           // batches of messages
		held    time.Duration // since when outputs wait for messages
		want    time.Duration
	}{
		{name: "the first write", outputs: 1},
		{name: "right after one", since: 1 * ms, outputs: 1, want: fewWriteInterval - 1*ms},
		{name: "later", since: fewWriteInterval - 3*ms, outputs: enoughOutputs - 1, want: 3 * ms},
		{name: "late enough", since: fewWriteInterval, outputs: 1},
		{name: "many right after one", since: 10 * ms, outputs: enoughOutputs, want: minWriteInterval - 10*ms},
		{name: "many late enough", since: minWriteInterval, outputs: enoughOutputs},
		{name: "after a pause", since: time.Second, outputs: 1},
		{name: "enough outputs", since: 1 * ms, outputs: fullBatch, coming: 1},
		{name: "messages to be applied", outputs: 1, coming: 1, want: maxHold},
		{name: "messages that never end", outputs: 1, coming: 1, held: maxHold},
		{name: "they wait already", outputs: 1, coming: 1, held: 1 * ms, want: maxHold - 1*ms},
		{name: "much to read", since: 1 * ms, outputs: fullBatch, coming: backlogHigh, want: backlogWriteInterval - 1*ms},
		{name: "much to read for long", since: backlogWriteInterval, outputs: fullBatch, coming: backlogHigh},
		{name: "much to read, and a few outputs for long", since: fewWriteInterval, outputs: 1, coming: backlogHigh, want: maxHold},
		{name: "a full batch", since: 1 * ms, outputs: maxOutputs, coming: maxQueuedBatches},
		{name: "apart first", since: 1 * ms, outputs: 1, coming: 1, want: fewWriteInterval - 1*ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := writePacer{}
			now := start.Add(tt.since)
			if tt.since > 0 {
				p.noteWrite(start)
			}
			if tt.held > 0 {
				p.heldSince = now.Add(-tt.held)
			}
			if got := p.delayFor(now, tt.outputs, tt.coming); got != tt.want {
				t.Errorf("waits %v, want %v", got, tt.want)
			}
			if p.noteWrite(now); !p.heldSince.IsZero() {
				t.Error("outputs of the next write wait since the last one")
			}
		})
	}
}

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
		took    time.Duration // of the last write, 0: there was none
		since   time.Duration // it landed
		outputs int
		more    bool
		held    time.Duration // since when outputs wait for messages
		want    time.Duration
	}{
		{name: "the first write", outputs: 1},
		{name: "after a quick one", took: quick, outputs: 1},
		{name: "after a slow one", took: quick + 8*ms, outputs: 1, want: 4 * ms},
		{name: "later", took: quick + 8*ms, since: 3 * ms, outputs: 1, want: 1 * ms},
		{name: "after a pause", took: quick + 8*ms, since: time.Second, outputs: 1},
		{name: "a slow disk", took: time.Second, outputs: 1, want: restMost},
		{name: "enough outputs", took: time.Second, outputs: enough, more: true},
		{name: "messages to be applied", outputs: 1, more: true, want: restMost},
		{name: "messages that never end", outputs: 1, more: true, held: restMost},
		{name: "they wait already", outputs: 1, more: true, held: 4 * ms, want: restMost - 4*ms},
		{name: "rest first", took: quick + 8*ms, outputs: 1, more: true, want: 4 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pace{}
			now := start.Add(tt.took + tt.since)
			if tt.took > 0 {
				p.launch(start)
				p.land(start.Add(tt.took))
			}
			if tt.held > 0 {
				p.held = now.Add(-tt.held)
			}
			if got := p.wait(now, tt.outputs, tt.more); got != tt.want {
				t.Errorf("waits %v, want %v", got, tt.want)
			}
			if p.launch(now); !p.held.IsZero() {
				t.Error("outputs of the next write wait since the last one")
			}
		})
	}
}

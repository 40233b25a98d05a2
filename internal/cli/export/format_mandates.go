package export

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/compliance/format"
	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/internal/cli/mandatecmd"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// formatMandates looks up the AUMP mandates of evidence. No record holds mandates: evidence names
// them by id and hash only.
type formatMandates struct {
	bucket *mandatecmd.MandateBucket    // nil: no mandate is known
	known  map[[2]string]encode.Mandate // by id and hash
	asked  map[string]bool              // ids that have been read
	err    error                        // the first error; the lines are not valid then
}

// formatMandates opens the mandates if the format needs them.
func (c *Cmd) formatMandates(ctx context.Context, io ui.Stdio) (*formatMandates, error) {
	m := &formatMandates{known: map[[2]string]encode.Mandate{}, asked: map[string]bool{}}
	if !format.NeedsMandates(c.Format) {
		return m, nil
	}
	b, err := mandatecmd.OpenMandates(ctx, c.Flags)
	if errors.Is(err, target.ErrNoServer) {
		fmt.Fprintln(io.Err, "note: no NATS server named, so no mandate is known: of every event only what retention class none allows is written")
		return m, nil
	}
	m.bucket = b
	return m, err
}

func (m *formatMandates) close() {
	if m.bucket != nil {
		m.bucket.Conn.Close()
	}
}

// maxFormatMandates bounds the cached ids.
const maxFormatMandates = 100_000

func (m *formatMandates) lookup(ctx context.Context) func(id, hash string) (encode.Mandate, bool) {
	return func(id, hash string) (encode.Mandate, bool) {
		if m.bucket == nil || m.err != nil || !mandate.ValidID(id) {
			return encode.Mandate{}, false
		}
		if !m.asked[id] && len(m.asked) < maxFormatMandates {
			m.asked[id] = true
			m.err = m.read(ctx, id)
		}
		found, ok := m.known[[2]string{id, hash}]
		return found, ok
	}
}

// read reads all revisions under an id that the bucket still has.
func (m *formatMandates) read(ctx context.Context, id string) error {
	list, err := m.bucket.History(ctx, id)
	if err != nil {
		return err
	}
	for _, h := range list {
		if h.ID == "" {
			continue
		}
		if doc, err := mandate.Compile([]byte(h.Mandate), nil); err == nil {
			m.known[[2]string{id, doc.Hash}] = encode.Mandate{Retention: doc.Evidence.Retention, EventsRequired: doc.Evidence.EventsRequired}
		}
	}
	return nil
}

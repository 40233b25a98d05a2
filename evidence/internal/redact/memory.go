package redact

// ScanCache keeps what was found in texts that were much work, so that a document
// that goes the long way after all, because of what was found or of how it is
// written, is not searched twice. What is found depends on nothing but the text. It
// is not for concurrent use; nil remembers nothing.
type ScanCache struct{ list []cachedScan }

type cachedScan struct {
	text  string
	spans []Span
	work  int
}

const (
	maxCachedScans = 16  // that are remembered
	minCachedWork  = 300 // less is soon done again
)

func (m *ScanCache) clear() {
	clear(m.list)
	m.list = m.list[:0]
}

func (m *ScanCache) store(text string, spans []Span, work int) {
	if work >= minCachedWork && len(m.list) < maxCachedScans {
		m.list = append(m.list, cachedScan{text, spans[:len(spans):len(spans)], work})
	}
}

// lookup is meter.scan, remembered.
func (m *ScanCache) lookup(text string) (spans []Span, work int, known bool) {
	if m == nil {
		return nil, 0, false
	}
	for i := range m.list {
		if r := &m.list[i]; r.text == text {
			return r.spans, r.work, true
		}
	}
	return nil, 0, false
}

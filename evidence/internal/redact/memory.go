package redact

// ScanCache holds the findings in texts that took much work, so that a document that the fast
// path rejects is not scanned twice. Findings depend only on the text. It is not safe for
// concurrent use; a nil ScanCache holds nothing.
type ScanCache struct{ list []cachedScan }

type cachedScan struct {
	text  string
	spans []Span
	work  int
}

const (
	maxCachedScans = 16  // greatest number of cached texts
	minCachedWork  = 300 // less work is cheaper to repeat
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

// lookup returns the cached result of workBudget.scanText.
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

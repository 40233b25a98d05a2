package redact

// Memory keeps what was found in texts that were much work, so that a document
// that goes the long way after all, because of what was found or of how it is
// written, is not searched twice. What is found depends on nothing but the text. It
// is not for concurrent use; nil remembers nothing.
type Memory struct{ list []remembered }

type remembered struct {
	text  string
	spans []Span
	work  int
}

const (
	memoryTexts = 16  // that are remembered
	memoryWork  = 300 // less is soon done again
)

func (m *Memory) clear() {
	clear(m.list)
	m.list = m.list[:0]
}

func (m *Memory) keep(text string, spans []Span, work int) {
	if work >= memoryWork && len(m.list) < memoryTexts {
		m.list = append(m.list, remembered{text, spans[:len(spans):len(spans)], work})
	}
}

// find is meter.scan, remembered.
func (m *Memory) find(text string) (spans []Span, work int, known bool) {
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

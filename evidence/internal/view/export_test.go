package view

// ScansValue reports whether the scanner accepts a text.
func ScansValue(text []byte) bool {
	s := &scanner{text: text}
	_, ok := s.scanValue()
	return ok && s.atEnd()
}

package recorded

// Index finds the event that another line of a recording is about, by an id that both have.
type Index[T any] map[reference]T

// reference is an id of one kind.
type reference struct{ kind, id string }

// references lists the references of a line, the most exact first.
func references(event, session, call string) [3]reference {
	return [3]reference{{"event", event}, {"session", session}, {"call", call}}
}

// Add notes an event under its ids; "" is none. Of several events with one id the first is found.
func (x Index[T]) Add(event, session, call string, about T) {
	for _, r := range references(event, session, call) {
		if _, there := x[r]; !there && r.id != "" {
			x[r] = about
		}
	}
}

// Lookup returns what was noted under the first of the ids that is known.
func (x Index[T]) Lookup(event, session, call string) (about T, known bool) {
	for _, r := range references(event, session, call) {
		if about, known = x[r]; known {
			return about, true
		}
	}
	return about, false
}

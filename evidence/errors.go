package evidence

import "errors"

// Errors that callers decide on.
var (
	// ErrKeys says that a key that redaction needs is missing or too short.
	ErrKeys = errors.New("evidence: a digest or session key is missing")
	// ErrRecord says that a text is not an evidence record in canonical form.
	ErrRecord = errors.New("evidence: not a canonical evidence record")
	// ErrUnwrap says that a wrapped session key is damaged or was wrapped for
	// another tenant or session.
	ErrUnwrap = errors.New("evidence: the wrapped session key does not open")
)

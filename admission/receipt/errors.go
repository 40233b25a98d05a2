package receipt

import "errors"

// Error is the reason why a receipt does not hold. With any Error the call must not run. Code
// is stable, for programs and logs; neither Code nor the text quotes the receipt.
type Error struct {
	Code   string
	text   string
	parent error // the more general error that this one is a case of
}

func (e *Error) Error() string { return e.text }
func (e *Error) Unwrap() error { return e.parent }

// Code returns the code of an error of Verify, "" for any other error.
func Code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func newError(code, text string, of error) error {
	return &Error{Code: code, text: "receipt: " + text, parent: of}
}

// ErrIncomplete reports that Issue was given incomplete claims.
var ErrIncomplete = errors.New("receipt: cannot be issued")

// Why a receipt does not hold. ErrUntrusted and ErrOtherCall stand for the errors below
// them, which say what exactly it is; test with errors.Is.
var (
	ErrMalformed = newError("receipt_malformed", "not a receipt", nil)

	ErrUntrusted    = newError("receipt_untrusted", "not signed by a key that is trusted here", nil)
	ErrUnknownKey   = newError("receipt_key_unknown", "signed by a key that is not known here", ErrUntrusted)
	ErrRetiredKey   = newError("receipt_key_retired", "signed by a key that was retired; ask again", ErrUntrusted)
	ErrBadSignature = newError("receipt_signature_invalid", "the signature is not that of its key", ErrUntrusted)

	ErrOtherCall     = newError("receipt_other_call", "made for another call", nil)
	ErrOtherTenant   = newError("receipt_other_tenant", "made for another tenant", ErrOtherCall)
	ErrOtherSource   = newError("receipt_other_source", "made for another publisher", ErrOtherCall)
	ErrOtherSession  = newError("receipt_other_session", "made for another session", ErrOtherCall)
	ErrOtherToolCall = newError("receipt_other_tool_call", "made for another tool_call_id", ErrOtherCall)
	ErrOtherTool     = newError("receipt_other_tool", "made for another tool", ErrOtherCall)

	ErrOtherArguments = newError("receipt_other_arguments", "made for other arguments", nil)
	ErrNoArguments    = newError("receipt_binds_no_arguments", "binds no arguments, but the call has some", nil)
	ErrNotAllowed     = newError("receipt_not_allow", "the verdict is not allow", nil)
	ErrNotYetValid    = newError("receipt_not_yet_valid", "issued in the future; compare the clocks", nil)
	ErrExpired        = newError("receipt_expired", "expired; ask again", nil)
)

package receipt

import "errors"

// Error is why a receipt does not hold. Whatever it is, the call must not run.
// Code is stable, for programs and logs; neither quotes anything of the receipt.
type Error struct {
	Code string
	text string
	of   error // the more general error that this one is a case of
}

func (e *Error) Error() string { return e.text }
func (e *Error) Unwrap() error { return e.of }

// Code is the code of an error of Verify, "" if it is another's.
func Code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func refusal(code, text string, of error) error {
	return &Error{Code: code, text: "receipt: " + text, of: of}
}

// ErrIncomplete says that Issue was given too little.
var ErrIncomplete = errors.New("receipt: cannot be issued")

// What Verify refuses. ErrUntrusted and ErrOtherCall stand for the errors below
// them, which say what exactly it is; test with errors.Is.
var (
	ErrMalformed = refusal("receipt_malformed", "not a receipt", nil)

	ErrUntrusted    = refusal("receipt_untrusted", "not signed by a key that is trusted here", nil)
	ErrUnknownKey   = refusal("receipt_key_unknown", "signed by a key that is not known here", ErrUntrusted)
	ErrRetiredKey   = refusal("receipt_key_retired", "signed by a key that was retired; ask again", ErrUntrusted)
	ErrBadSignature = refusal("receipt_signature_invalid", "the signature is not that of its key", ErrUntrusted)

	ErrOtherCall     = refusal("receipt_other_call", "made for another call", nil)
	ErrOtherTenant   = refusal("receipt_other_tenant", "made for another tenant", ErrOtherCall)
	ErrOtherSource   = refusal("receipt_other_source", "made for another publisher", ErrOtherCall)
	ErrOtherSession  = refusal("receipt_other_session", "made for another session", ErrOtherCall)
	ErrOtherToolCall = refusal("receipt_other_tool_call", "made for another tool_call_id", ErrOtherCall)
	ErrOtherTool     = refusal("receipt_other_tool", "made for another tool", ErrOtherCall)

	ErrOtherArguments = refusal("receipt_other_arguments", "made for other arguments", nil)
	ErrNoArguments    = refusal("receipt_binds_no_arguments", "binds no arguments, but the call has some", nil)
	ErrNotAllowed     = refusal("receipt_not_allow", "the verdict is not allow", nil)
	ErrNotYetValid    = refusal("receipt_not_yet_valid", "issued in the future; compare the clocks", nil)
	ErrExpired        = refusal("receipt_expired", "expired; ask again", nil)
)

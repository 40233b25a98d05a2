package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/records"
)

// SessionNames is the option for flags of type session.
var SessionNames = kong.NamedMapper("session", sessionName{})

// sessionName converts the name of a session to the one in records: a long name does not fit into
// a subject and is hashed.
type sessionName struct{}

func (sessionName) Decode(ctx *kong.DecodeContext, to reflect.Value) error {
	var name string
	if err := ctx.Scan.PopValueInto("session", &name); err != nil {
		return err
	}
	to.SetString(subject.TokenValue(name))
	return nil
}

// CheckSession returns an error for a session without evidence, with similar names; nil if it has
// evidence.
func CheckSession(ctx context.Context, db *read.Reader, tenant, session string) error {
	sessions := records.New(db.Pool())
	like, err := sessions.SessionsWithPrefix(ctx, tenant, session, 6)
	if err != nil {
		return err
	}
	for _, name := range like {
		if name == session {
			return nil
		}
	}
	for n := len([]rune(session)) / 2; len(like) == 0 && n >= 2; n /= 2 {
		if like, err = sessions.SessionsWithPrefix(ctx, tenant, string([]rune(session)[:n]), 6); err != nil {
			return err
		}
	}
	hint := "evidence is there a moment after the log; countersign doctor says how far it is behind"
	if len(like) > 0 {
		hint = "did you mean " + strings.Join(quotedAll(like), ", ") + "?"
	}
	return fmt.Errorf("%w: tenant %q, session %.100q (%s)", evidencereader.ErrNoSession, tenant, session, hint)
}

// SuggestSession returns err, with similar names if the session has no evidence.
func SuggestSession(ctx context.Context, db *read.Reader, tenant, session string, err error) error {
	if errors.Is(err, evidencereader.ErrNoSession) {
		return cmp.Or(CheckSession(ctx, db, tenant, session), err)
	}
	return err
}

func quotedAll(names []string) []string {
	list := make([]string, len(names))
	for i, n := range names {
		list[i] = fmt.Sprintf("%.80q", n)
	}
	return list
}

package export

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/keys"
)

// exportPlan is the task of an export, after its flags were checked.
type exportPlan struct {
	ranged   bool
	from, to time.Time // ranged
	key      ed25519.PrivateKey
	chromium string
}

func (p exportPlan) keyID() string { return signing.KeyID(p.key.Public().(ed25519.PublicKey)) }

func (c *Cmd) plan() (p exportPlan, err error) {
	for _, file := range []string{c.Out, c.PDF} {
		if err := c.refuseOverwrite(file); err != nil {
			return p, err
		}
	}
	switch p.ranged = c.From != "" || c.To != ""; {
	case p.ranged && c.Session != "":
		return p, ui.UsageError{Err: errors.New("give --session, or --from and --to; a session is always exported whole")}
	case !p.ranged && c.Session == "":
		return p, ui.UsageError{Err: errors.New("give --session SESSION, or --from TIME --to TIME for everything of the tenant")}
	case p.ranged:
		if p.from, p.to, err = exportRange(c.From, c.To, time.Now()); err != nil {
			return p, ui.UsageError{Err: err}
		}
	}
	if p.chromium, err = c.chromium(); err != nil {
		return p, err
	}
	if c.SignKey != "" {
		p.key, err = statementKey(c.SignKey)
	}
	return p, err
}

// exportRange parses the two ends of a range. A range that has not ended is refused: a later
// export would differ.
func exportRange(from, to string, now time.Time) (time.Time, time.Time, error) {
	if from == "" || to == "" {
		return time.Time{}, time.Time{}, errors.New("a range has two ends: give --from TIME and --to TIME")
	}
	begin, err := exportTime("--from", from)
	if err != nil {
		return begin, begin, err
	}
	end, err := exportTime("--to", to)
	switch {
	case err != nil:
		return begin, end, err
	case !begin.Before(end):
		return begin, end, fmt.Errorf("the range is empty: --from %s is not before --to %s", from, to)
	case end.After(now):
		return begin, end, fmt.Errorf("the range is still being written: --to %s lies in the future; give the time that it is now (%s) or an earlier one", to, now.UTC().Format(time.RFC3339))
	}
	return begin, end, nil
}

func exportTime(flag, text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s %q is no time: write 2026-11-01 (UTC) or 2026-11-01T06:00:00Z", flag, text)
}

// statementKey reads a signing key, which only its owner may read.
func statementKey(path string) (ed25519.PrivateKey, error) {
	seed, err := keys.Seed(filepath.Dir(path), filepath.Base(path))
	if errors.Is(err, keys.ErrMissing) {
		return nil, ui.UsageError{Err: fmt.Errorf("--sign-key: there is no file %s; make one with: countersign keys statement --keys DIR", path)}
	}
	if err != nil {
		return nil, ui.UsageError{Err: fmt.Errorf("--sign-key: %w", err)}
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

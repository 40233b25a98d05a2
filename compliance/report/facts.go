package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/compliance/internal/protocol"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// redactionCounts counts redactions by detector and action, and where they are.
type redactionCounts struct {
	rows        map[[2]string]*redactionRow
	total       int
	records     int            // with at least one redaction
	withoutBody map[string]int // records without a body, by reason
}

type redactionRow struct {
	Detector, Action, Why string
	Count                 int
	paths                 map[string]int
	notListed             int // redactions in places that are not listed
}

// Paths lists the places, the most frequent first.
func (r *redactionRow) Paths() []string {
	type place struct {
		path string
		n    int
	}
	var list []place
	for p, n := range r.paths {
		list = append(list, place{p, n})
	}
	slices.SortFunc(list, func(a, b place) int { return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.path, b.path)) })
	out := make([]string, 0, len(list)+1)
	for _, p := range list {
		text := shortVisible(p.path)
		if p.n > 1 {
			text = fmt.Sprintf("%s (%d times)", text, p.n)
		}
		out = append(out, text)
	}
	if r.notListed > 0 {
		out = append(out, fmt.Sprintf("and %d in other places", r.notListed))
	}
	return out
}

func (t *redactionCounts) addRecord(r evidence.Record) {
	if r.Reason != "" {
		if t.withoutBody == nil {
			t.withoutBody = map[string]int{}
		}
		if _, known := t.withoutBody[r.Reason]; known || len(t.withoutBody) < MaxNames {
			t.withoutBody[r.Reason]++
		}
	}
	if len(r.Redactions) > 0 {
		t.records++
	}
	for _, red := range r.Redactions {
		t.total++
		key := [2]string{red.Detector, cmp.Or(red.Action, "mask")}
		row := t.rows[key]
		if row == nil {
			if t.rows == nil {
				t.rows = map[[2]string]*redactionRow{}
			}
			row = &redactionRow{Detector: shortVisible(key[0]), Action: cmp.Or(actionWords[key[1]], shortVisible(key[1])), Why: whyRedacted(key[0]), paths: map[string]int{}}
			t.rows[key] = row
		}
		row.Count++
		path := anyIndex(red.Path)
		if _, known := row.paths[path]; known || len(row.paths) < MaxPaths {
			row.paths[path]++
		} else {
			row.notListed++
		}
	}
}

// anyIndex replaces the numbers in a JSON pointer by *, so that the elements of a list count as one
// place.
func anyIndex(pointer string) string {
	tokens := strings.Split(pointer, "/")
	for i, t := range tokens {
		if t != "" && strings.Trim(t, "0123456789") == "" {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, "/")
}

func (t *redactionCounts) sortedRows() []*redactionRow {
	out := make([]*redactionRow, 0, len(t.rows))
	for _, r := range t.rows {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *redactionRow) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Detector, b.Detector), strings.Compare(a.Action, b.Action))
	})
	return out
}

var actionWords = map[string]string{
	"mask": "masked", "hash": "replaced by a digest of the session", "tokenise": "replaced by a token of the tenant", "truncate": "cut off", "drop": "dropped",
}

// whyRedacted describes what a detector looks for.
func whyRedacted(detector string) string {
	if why, known := redactionReasons[detector]; known {
		return why
	}
	return "It has the shape of a credential that this detector knows."
}

var redactionReasons = map[string]string{
	"declared_field":        "The publisher itself named the field as one to be redacted.",
	"credential_field":      "The name of the field says that it holds a credential.",
	"credential_assignment": "A credential was assigned in a text.",
	"high_entropy_value":    "A random-looking value in a field named like a key.",
	"encoded_data":          "Encoded data in which something else to be redacted was found.",
	"email":                 "Personal data: an e-mail address.",
	"phone":                 "Personal data: a telephone number.",
	"payment_card":          "Payment data: a card number.",
	"iban":                  "Payment data: an account number.",
	"national_id":           "Personal data: an identity number.",
	"postal_address":        "Personal data: an address.",
	"date_of_birth":         "Personal data: a date of birth.",
	"personal_field":        "Personal data, by the name of the field.",
	"never_store":           "The protocol says that an audit trail must not keep it.",
	"private_account_id":    "The protocol says that an audit trail must not keep it.",
	"protected_field":       "A mandate protects the field.",
	"policy_field":          "The tenant's redaction policy names the field.",
	"invalid_utf8":          "Bytes that are no text.",
	"too_many":              "A text with so many findings that it was taken out as a whole.",
	"withheld":              "The whole body, or all headers, are withheld.",

	"retention_summary_only": "Not kept: the tenant's retention class summary_only allows identifiers and summaries.",
	"retention_hashes":       "Not kept: the tenant's retention class hashes allows identifiers and digests.",
	"retention_none":         "Not kept: the tenant's retention class none allows nothing of it.",
}

// chainCheck checks the chains of the sessions.
type chainCheck struct {
	prev        map[string]uint64 // last index by session, of at most about maxSessions sessions
	broken      int               // breaks
	breaks      []string          // the first of them
	ends        []string
	ended       int
	afterEnd    int  // requests and events after the last end
	unfollowed  bool // there are more sessions than prev holds
	missingSeqs int  // sequences between the first and the last that are missing here
	last        uint64
}

// maxNotes is how many breaks and endings are listed.
const maxNotes = 20

func (c *chainCheck) addRecord(r evidence.Record) {
	if c.last > 0 && r.Seq > c.last {
		c.missingSeqs += int(r.Seq - c.last - 1)
	}
	c.last = r.Seq
	if r.SessionIndex == nil {
		return
	}
	if c.prev == nil {
		c.prev = map[string]uint64{}
	}
	before, known := c.prev[r.Session]
	if known && *r.SessionIndex != before+1 {
		c.broken++
		if len(c.breaks) < maxNotes {
			c.breaks = append(c.breaks, fmt.Sprintf("at sequence %d: record %d of the session follows record %d", r.Seq, *r.SessionIndex, before))
		}
	}
	if known || len(c.prev) < maxSessions {
		c.prev[r.Session] = *r.SessionIndex
	} else {
		c.unfollowed = true
	}
}

// addSessionEnd records the end of a session, as its publisher reports it, and what follows.
func (c *chainCheck) addSessionEnd(r evidence.Record, p subject.Parsed) {
	if r.Kind != evidence.KindEvent || !protocol.EndsSession(p.Type) {
		c.afterEnd++
		return
	}
	c.ended++
	c.afterEnd = 0
	if len(c.ends) < maxNotes {
		c.ends = append(c.ends, fmt.Sprintf("%s at sequence %d, reported by %s", shortVisible(p.Type), r.Seq, publisherOf(p)))
	}
}

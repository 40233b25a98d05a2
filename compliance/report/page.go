package report

import (
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/compliance/controls"
	"github.com/countersign-dev/countersign/evidence"
)

//go:embed page.html style.css
var pageFiles embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{"mark": markFor, "slug": linkID, "style": styleSheet}).ParseFS(pageFiles, "page.html"))

// styleSheet is the page's own style sheet. No data of records is in it.
func styleSheet() (template.CSS, error) {
	b, err := pageFiles.ReadFile("style.css")
	return template.CSS(b), err //nolint:gosec // G203: the sheet is a file of this package
}

// pageView is the content of the page.
type pageView struct {
	Format, Title, Tenant, Session, Shard string
	Range                                 string
	Glance                                []summaryRow
	Summary                               []pair
	Counts                                []pair
	Decisions, Approvals, Findings        any
	Calls, Timeline                       any
	Policies                              []*policyRow
	PoliciesMore                          int
	InForce                               []stateView
	MandateTexts                          []textView
	Redactions                            []*redactionRow
	RedactionNote                         string
	ExpiredNote, InTexts                  string // empty if no text expired
	Absent                                []pair
	Complete                              []pair
	ControlSupport                        controls.Support
	Keys                                  []pair
	Signers                               []string
}

type pair struct{ Name, Value string }

// groups is a table split into parts that the reader can expand.
type groups[T any] struct {
	Groups []group[T]
	Total  int // number of rows in all
	Shown  int
	More   bool // there are further rows, which are not counted
}

type group[T any] struct {
	First, Last int
	Open        bool
	Rows        []T
}

func groupRows[T any](rows []T, total int) groups[T] {
	g := groups[T]{Total: total, Shown: len(rows)}
	for at := 0; at < len(rows); at += GroupRows {
		end := min(at+GroupRows, len(rows))
		g.Groups = append(g.Groups, group[T]{First: at + 1, Last: end, Open: at == 0, Rows: rows[at:end]})
	}
	return g
}

// Render writes the page: the same bytes for the same records.
func (b *Builder) Render(w io.Writer) error {
	v := pageView{Format: Edition(), Tenant: shortVisible(b.src.Tenant), Session: shortVisible(b.src.Session), Shard: shortVisible(b.src.Shard),
		Decisions: groupRows(b.decisions.rows, b.decisions.total), Approvals: groupRows(b.approvals.rows, b.approvals.total),
		Findings: groupRows(b.markRetracted(), b.findings.total), Calls: b.calls.groupRows(),
		Timeline: groupRows(b.timeline.rows, b.timeline.total), Policies: b.policies.rows, PoliciesMore: b.policies.notListed,
		Redactions: b.redacted.sortedRows(), Absent: sortedCounts(b.redacted.withoutBody), ControlSupport: b.controlCounts.Support()}
	v.Title = "Evidence of session " + v.Session
	if b.src.Session == "" {
		v.Title = "Evidence of tenant " + v.Tenant
		v.Range = formatTime(b.src.From) + " to " + formatTime(b.src.To) + " UTC"
	}
	if b.redacted.total > 0 {
		v.RedactionNote = fmt.Sprintf("%s in %s.", countWord(b.redacted.total, "redaction"), countWord(b.redacted.records, "record"))
	}
	if b.src.Expired > 0 {
		v.ExpiredNote = countWord(b.src.Expired, "record") + " expired: what they held is not in this section."
	}
	v.InTexts = b.inTexts()
	v.InForce, v.MandateTexts = b.inForceViews()
	v.Glance, v.Summary, v.Counts, v.Complete = b.summaryRows(), b.summaryPairs(), b.countPairs(), b.completenessPairs()
	v.Keys, v.Signers = b.receiptKeys()
	return pageTemplate.Execute(w, v)
}

// inTexts limits a sentence about what is not there to the records that have their text, if not all have it.
func (b *Builder) inTexts() string { return b.ifExpired(" in the texts that are here") }

// ifExpired returns words that a sentence needs only if texts expired.
func (b *Builder) ifExpired(words string) string {
	if b.src.Expired == 0 {
		return ""
	}
	return words
}

// markRetracted marks the findings that a later one retracts.
func (b *Builder) markRetracted() []findingRow {
	rows := slices.Clone(b.findings.rows)
	for i := range rows {
		_, stands := b.standing[rows[i].id]
		rows[i].Retracted = !stands && !rows[i].Retracts
	}
	return rows
}

func (b *Builder) summaryPairs() []pair {
	list := []pair{{"Tenant", shortVisible(b.src.Tenant)}}
	if b.src.Session != "" {
		list = append(list, pair{"Session", shortVisible(b.src.Session)})
	} else {
		sessions := countWord(len(b.sessions), "session") + b.ifExpired(" with texts here")
		if len(b.sessions) > maxSessions {
			sessions = fmt.Sprintf("more than %d sessions", maxSessions)
		}
		list = append(list, pair{"Range asked for", formatTime(b.src.From) + " to " + formatTime(b.src.To) + " UTC (the end excluded)"}, pair{"Sessions", sessions})
	}
	list = append(list, pair{"Agents", b.namesText(b.agents)}, pair{"Publishers", b.namesText(b.sources)}, pair{"Protocols", b.namesText(b.protocols)})
	if b.count > 0 {
		list = append(list, pair{"First record", formatEventTime(b.first.BrokerTime) + " UTC"}, pair{"Last record", formatEventTime(b.last.BrokerTime) + " UTC"})
	}
	list = append(list, pair{"Records" + b.ifExpired(" that have their text"), fmt.Sprint(b.count)})
	if b.src.Expired > 0 {
		list = append(list, pair{"Records whose text expired", fmt.Sprint(b.src.Expired)})
	}
	return list
}

func (b *Builder) namesText(n nameSet) string {
	text := strings.Join(n.list, ", ")
	if n.truncated {
		text += " and others"
	}
	return cmp.Or(text, "none named"+b.inTexts())
}

var kindOrder = []string{evidence.KindRequest, evidence.KindDecision, evidence.KindApproval, evidence.KindEvent, evidence.KindCall, evidence.KindFinding, evidence.KindControl, evidence.KindUnparseable}

func (b *Builder) countPairs() []pair {
	var list []pair
	for _, k := range kindOrder {
		if b.kinds[k] > 0 {
			list = append(list, pair{"Records of kind " + k, fmt.Sprint(b.kinds[k])})
		}
	}
	return list
}

func sortedCounts(m map[string]int) []pair {
	var list []pair
	for k, n := range m {
		list = append(list, pair{shortVisible(k), fmt.Sprint(n)})
	}
	slices.SortFunc(list, func(a, b pair) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// completenessPairs says what these records show about completeness, and what they do not show.
func (b *Builder) completenessPairs() []pair {
	cp := b.src.Checkpoint
	list := []pair{{"Log", shortVisible(b.src.Shard)}}
	if b.count > 0 {
		list = append(list, pair{"Sequences of these records", fmt.Sprintf("%d to %d, %s", b.first.Seq, b.last.Seq, countWord(b.count, "record"))},
			pair{"Sequences in between that are not here", b.missingText()})
	}
	if b.src.Expired > 0 {
		list = append(list, pair{"Expired", b.expiredText()})
	}
	list = append(list, pair{"Signed tree", fmt.Sprintf("%d records, root %s", cp.Size, cp.Root)})
	chain := "unbroken: in each session" + b.ifExpired(", of the records that have their text") + ", every record names the one before it, and none is left out between its first and its last record here"
	if b.count == 0 && b.src.Expired > 0 {
		chain = "no record here has its text, which names the one before it; countersign verify checks the places of expired records"
	}
	if b.chainCheck.unfollowed {
		chain += fmt.Sprintf("; looked at in the first %d sessions, countersign verify looks at all", maxSessions)
	}
	if n := b.chainCheck.broken; n > 0 {
		chain = "BROKEN " + strings.Join(b.chainCheck.breaks, "; ")
		if more := n - len(b.chainCheck.breaks); more > 0 {
			chain += fmt.Sprintf("; and %d more", more)
		}
	}
	list = append(list, pair{"Chain", chain})
	if b.src.Session == "" {
		list = append(list, pair{"Sessions that ended", fmt.Sprintf("%d, as their publishers report", b.chainCheck.ended)},
			pair{"Sessions cut by the range", "a session may have records before and after; its first record here then does not have index 1"})
	} else {
		list = append(list, pair{"Did the session end", b.endedText()},
			pair{"Later records", "Whether the session has records after the last one here, only the whole log can show, or a later export."},
			pair{"Other incarnations of the log", "If the log began anew, records that the session has in earlier or later incarnations of it are not here."})
	}
	return list
}

// missingText says what the sequences are that are missing. Of a session the chain shows that none is
// its own; of a range nothing here shows whose they are.
func (b *Builder) missingText() string {
	text, they := fmt.Sprint(b.chainCheck.missingSeqs), "they"
	if b.src.Expired > 0 {
		text, they = text+", expired records included", "the others"
	}
	if b.src.Session != "" {
		return text + "; " + they + " belong to other sessions, tenants or the pipeline itself"
	}
	return text + "; that " + they + " belong to other tenants or the pipeline itself, only the whole log can show: a record that was left out is noticed if its session has records here before and after it, and not otherwise"
}

// expiredText says what is missing from the rest of the page, and why.
func (b *Builder) expiredText() string {
	var why []string
	for _, x := range b.src.Expiries {
		if text := fmt.Sprintf("on %s UTC under retention policy %s", formatEventTime(x.At), shortVisible(x.Policy)); !slices.Contains(why, text) && len(why) < maxNotes {
			why = append(why, text)
		}
	}
	text := fmt.Sprintf("%s, of which nothing is on this page: the tenant's retention policy let the text go", countWord(b.src.Expired, "further record"))
	if len(why) > 0 {
		text += ", " + strings.Join(why, "; ")
	}
	return text + ". The hashes are in this file and in the signed tree; expiries.json has the signed records that say so."
}

func (b *Builder) endedText() string {
	if b.chainCheck.ended == 0 {
		return "no end is recorded" + b.inTexts() + ": it may go on"
	}
	text := "yes: " + strings.Join(b.chainCheck.ends, "; ")
	if n := b.chainCheck.afterEnd; n > 0 {
		text += fmt.Sprintf("; requests and events after it: %d, see the timeline", n)
	}
	return text
}

// receiptKeys lists the receipt keys, and the signers that the checkpoint itself names. When a key was
// published is not vouched for, so it is not shown.
func (b *Builder) receiptKeys() (list []pair, signers []string) {
	for i, k := range b.src.Keys {
		if i == MaxNames {
			list = append(list, pair{"more", fmt.Sprintf("%d further keys are in keys.json", len(b.src.Keys)-i)})
			break
		}
		list = append(list, pair{shortVisible(k.KeyID), fmt.Sprintf("%s, %s, public key %s", shortVisible(k.Use), shortVisible(k.Algorithm), shortVisible(k.PublicKey))})
	}
	_, lines, _ := strings.Cut(b.src.Note, "\n\n")
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) == 3 && words[0] == "\u2014" && len(signers) < MaxNames {
			signers = append(signers, shortVisible(words[1]))
		}
	}
	return list, signers
}

// wordStyles are the sign beside a word and its style class. The word itself is always shown too.
var wordStyles = map[string][2]string{
	"allow": {"✓", "good"}, "ask": {"?", "wait"}, "defer": {"?", "wait"}, "deny": {"✕", "bad"},
	"completed": {"✓", "good"}, "approved": {"✓", "good"}, "consumed": {"✓", "good"}, "pending": {"?", "wait"}, "open": {"?", "wait"},
	"denied": {"✕", "bad"}, "failed": {"✕", "bad"}, "abandoned": {"!", "wait"}, "orphaned": {"!", "bad"}, "expired": {"!", "wait"}, "cancelled": {"!", "wait"},
	"unbroken": {"✓", "good"}, "broken": {"!!", "bad"},
	"critical": {"!!", "bad"}, "high": {"!", "bad"}, "medium": {"!", "wait"}, "low": {"·", "plain"}, "info": {"·", "plain"},
}

// markView is a word with its style.
type markView struct{ Word, Sign, Class string }

func markFor(word string) markView {
	l, known := wordStyles[word]
	if !known {
		l = [2]string{"", "plain"}
	}
	return markView{word, l[0], l[1]}
}

// linkID makes an id for links within the page from the id of a control.
func linkID(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, s)
}

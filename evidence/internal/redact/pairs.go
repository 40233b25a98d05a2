package redact

import "slices"

// anchor is one literal of one rule, with the end of the pair that finds it.
type anchor struct {
	rule        int
	literal     string
	end         int // index in literal of the pair's second byte
	fold, glued bool
}

const (
	listAssign = 1 // pairs before = and :
	listFlag   = 2 // --
	listDigits = 3 // two digits
	listAt     = 4 // before @
	listTag    = 5 // </
	listWide   = 6 // the end of a full-width separator
	listOption = 7 // the dash of a flag
	firstList  = 8
	maxLists   = 256 // numbers of lists are bytes
)

type pairIndex struct {
	bits  [1 << 13]byte // the prefilter: one bit for each pair
	list  [1 << 16]uint8
	lists [][]anchor // by list number
}

// ordinaryPairs counts each pair in ordinaryText, once for all literals.
func ordinaryPairs() *[1 << 16]uint16 {
	var counts [1 << 16]uint16
	for i := 1; i < len(ordinaryText); i++ {
		counts[pairOf(ordinaryText[i-1], ordinaryText[i])]++
	}
	return &counts
}

var pairTable = func() *pairIndex {
	p := &pairIndex{lists: make([][]anchor, firstList)}
	set := func(a, b byte, list uint8) {
		i := uint16(a)<<8 | uint16(b)
		p.bits[i>>3] |= 1 << (i & 7)
		p.list[i] = list
	}
	for c := range 256 {
		if endingBits[c] || c >= 0x80 || byteClass[c]&(quoteChar|digit) != 0 || c == ' ' || c == '\t' || c == ']' {
			set(byte(c), '=', listAssign)
			set(byte(c), ':', listAssign)
		}
	}
	set('e', '=', listAssign) // value=, see pairedName
	set('e', ':', listAssign)
	set('-', '-', listFlag)
	set('<', '/', listTag)
	for _, c := range " \t'\"" {
		set(byte(c), '-', listOption)
	}
	for _, sign := range [...]string{wideColon, wideEquals} {
		set(sign[1], sign[2], listWide)
	}
	for a := '0'; a <= '9'; a++ {
		for b := '0'; b <= '9'; b++ {
			set(byte(a), byte(b), listDigits)
		}
	}
	for c := range 256 {
		if byteClass[c]&mailLocal != 0 {
			set(byte(c), '@', listAt)
		}
	}
	ordinary := ordinaryPairs()
	for r := range rules {
		for _, lit := range rules[r].literals {
			a := anchor{rule: r, literal: lit, fold: rules[r].fold, glued: rules[r].glued}
			a.end = p.rarestPair(lit, ordinary)
			p.addAnchor(set, a)
		}
	}
	if len(p.lists) > maxLists {
		panic("redact: more lists than a byte can number")
	}
	return p
}()

// rarestPair returns the end of the pair in a literal that is rarest in ordinary text and in the
// other literals.
func (p *pairIndex) rarestPair(lit string, ordinary *[1 << 16]uint16) (end int) {
	best := -1
	for i := len(lit) - 1; i > 0; i-- {
		pair := pairOf(lit[i-1], lit[i])
		if list := p.list[pair]; list != 0 && list < firstList {
			continue
		}
		cost := 8*int(ordinary[pair]) + len(p.lists[p.list[pair]])
		if best < 0 || cost < best {
			best, end = cost, i
		}
	}
	if best < 0 {
		panic("redact: no pair of " + lit + " can be looked for")
	}
	return end
}

// ordinaryText resembles the content of most events.
const ordinaryText = `{"event_id":"evt_b8c4e9a2f5d1a8c4","event_type":"PreToolUse","schema_version":1,"timestamp":"2026-11-20T06:42:00.123Z",` +
	`"session_id":"sess_2c91a7b4d23f1e88","tool_call_id":"call_3f8d","tool_name":"send_email","tool_input":{"path":"/workspace/src/main.go"},` +
	`"metadata":{"risk":{"risk_class":"read_only","requires_human_approval":false},"tool_input_executed":null,"exit_code":0,"is_error":false}}` +
	` The agent looked at the pages of the report, chose two of them and wrote a short summary for the user who had asked about the` +
	` shipping options, their prices, and whether something else would be better; nothing was sent yet. See the docs over there. We did,` +
	` however, ask for more. Is it so? "Yes," she said: that is what they have always done with every order. func main() { return err }` +
	` Sorted by time, the entries are strings; nobody tried to convert them, or identified their owners by sub-string.` +
	` if err != nil { log.Printf("open %s: %v", name, err) } GET /api/v1/users?limit=10&offset=20 HTTP/1.1 200 OK error: file not found` +
	` user_id customer_name created_at updated_at order_status last_error max_results file_path source_ref job_type is_open has_more next_page context report deep repeat`

func (p *pairIndex) addAnchor(set func(a, b byte, list uint8), a anchor) {
	x, y := a.literal[a.end-1], a.literal[a.end]
	forms := [][2]byte{{x, y}}
	if a.fold {
		for _, f := range [...][2]byte{{upperASCII(x), y}, {x, upperASCII(y)}, {upperASCII(x), upperASCII(y)}} {
			if !slices.Contains(forms, f) {
				forms = append(forms, f)
			}
		}
	}
	for _, f := range forms {
		i := uint16(f[0])<<8 | uint16(f[1])
		if p.list[i] == 0 {
			p.lists = append(p.lists, nil)
			set(f[0], f[1], uint8(len(p.lists)-1))
		}
		p.lists[p.list[i]] = append(p.lists[p.list[i]], a)
	}
}

// next returns the end of the next pair with a list at or after i, or len(s).
func (p *pairIndex) next(s string, i int) int {
	if i >= len(s) {
		return len(s)
	}
	prev := s[i-1]
	for ; i < len(s); i++ {
		pair := pairOf(prev, s[i])
		if p.bits[pair>>3]&(1<<(pair&7)) != 0 {
			return i
		}
		prev = s[i]
	}
	return i
}

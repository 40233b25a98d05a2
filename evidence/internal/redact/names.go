package redact

import "math/bits"

// strength says how much a name alone proves about its value.
type strength int

const (
	none   strength = iota
	weak            // the value is a secret if it looks random
	strong          // the value is a secret
)

// name is one row of the table of credential names. Names are compared after
// normalising: lower case, and letters and digits only, so that api_key,
// Api-Key and apiKey are one.
type name struct {
	text  string
	s     strength
	exact bool // false: a name that ends with text counts too (github_token)
	prose bool // also an everyday word: "token: a" in a text proves nothing
	line  bool // a header: in a text its value reaches to the end of the line
}

// names holds, longest first for each ending, what is a credential by its name.
// Rows with strength none are exceptions to shorter rows below them.
var names = []name{
	{text: "replytoken"}, {text: "continuationtoken"}, {text: "idempotencytoken"}, {text: "pagetoken"},
	{text: "nexttoken"}, {text: "synctoken"}, {text: "pertoken"}, {text: "maxtoken"}, {text: "publickey"},
	{text: "idempotencykey"}, {text: "partitionkey"}, {text: "primarykey"}, {text: "foreignkey"}, {text: "cachekey"},

	{text: "password", s: strong}, {text: "passwd", s: strong}, {text: "passphrase", s: strong},
	{text: "pwd", s: strong}, {text: "passcode", s: strong},
	{text: "secretaccesskey", s: strong}, {text: "secretkey", s: strong}, {text: "privatekey", s: strong},
	{text: "apikey", s: strong}, {text: "accountkey", s: strong}, {text: "accesskey", s: strong},
	{text: "signingkey", s: strong}, {text: "encryptionkey", s: strong}, {text: "masterkey", s: strong},
	{text: "deploykey", s: strong}, {text: "sharedkey", s: strong}, {text: "authkey", s: strong},
	{text: "secret", s: strong, prose: true}, {text: "clientsecret", s: strong},
	{text: "token", s: strong, prose: true}, {text: "accesstoken", s: strong}, {text: "refreshtoken", s: strong},
	{text: "sessiontoken", s: strong}, {text: "authtoken", s: strong}, {text: "securitytoken", s: strong},
	{text: "apitoken", s: strong}, {text: "idtoken", s: strong},
	{text: "authorization", s: strong, exact: true, prose: true, line: true},
	{text: "proxyauthorization", s: strong, exact: true, line: true},
	{text: "cookie", s: strong, prose: true, line: true}, {text: "setcookie", s: strong, line: true},
	{text: "cookies", s: strong, exact: true, prose: true, line: true},
	{text: "credential", s: strong, prose: true}, {text: "credentials", s: strong, prose: true},
	{text: "bearer", s: strong, exact: true, prose: true}, {text: "jwt", s: strong, exact: true, prose: true},
	{text: "connectionstring", s: strong}, {text: "seedphrase", s: strong}, {text: "recoveryphrase", s: strong},
	{text: "mnemonic", s: strong, exact: true, prose: true}, {text: "otp", s: strong, exact: true},
	{text: "jsessionid", s: strong, exact: true}, {text: "phpsessid", s: strong, exact: true},
	{text: "xamzsignature", s: strong, exact: true},

	{text: "key", s: weak}, {text: "auth", s: weak}, {text: "sig", s: weak, exact: true},
	{text: "pass", s: weak, exact: true}, {text: "pw", s: weak, exact: true}, {text: "cred", s: weak, exact: true},
	{text: "creds", s: weak, exact: true},
}

// byEnding indexes names by their last two letters: the number of a list in
// endings, longest name first, 0 for none.
var (
	byEnding [1 << 16]uint8
	endings  = func() [][]name {
		lists := [][]name{nil}
		for _, n := range names {
			end := pairOf(n.text[len(n.text)-2], n.text[len(n.text)-1])
			if byEnding[end] == 0 {
				lists = append(lists, nil)
				byEnding[end] = uint8(len(lists) - 1)
			}
			list := append(lists[byEnding[end]], n)
			for i := len(list) - 1; i > 0 && len(list[i].text) > len(list[i-1].text); i-- {
				list[i], list[i-1] = list[i-1], list[i]
			}
			lists[byEnding[end]] = list
		}
		return lists
	}()
)

// endingBits says by one letter whether any name ends with it, to spare most
// keys the map.
var endingBits = func() (t [256]bool) {
	for _, n := range names {
		c := n.text[len(n.text)-1]
		t[c], t[c-'a'+'A'] = true, true
	}
	return t
}()

// endingPairs says by the last two bytes of a word in a text whether a name may
// end with them. A sign between them is passed over by lookup, so a word that
// has one is let through.
var endingPairs = func() (t [1 << 16]bool) {
	for _, list := range endings[1:] {
		x, y := list[0].text[len(list[0].text)-2], list[0].text[len(list[0].text)-1]
		for _, x := range [...]byte{x, x - 'a' + 'A', '-', '_'} {
			t[pairOf(x, y)], t[pairOf(x, y-'a'+'A')] = true, true
		}
	}
	return t
}()

func pairOf(a, b byte) uint16 { return uint16(a)<<8 | uint16(b) }

// longestName is the length of the longest row of names (see TestLongestName).
const longestName = 18

// lookup finds the row of a name; a row of strength none when there is none.
func lookup(s string) name {
	last := len(s) - 1
	for last >= 0 && classOf[s[last]]&alnum == 0 {
		last--
	}
	if last < 1 || !endingBits[s[last]] {
		return name{}
	}
	var buf [longestName + 1]byte // filled from the end; one more than any name has
	n, whole := len(buf), true
	for i := last; i >= 0; i-- {
		c := s[i]
		if classOf[c]&alnum == 0 && c < 0x80 {
			continue
		}
		if n == 0 {
			whole = false
			break
		}
		n--
		buf[n] = lowerASCII(c)
	}
	norm := buf[n:]
	if len(norm) < 2 {
		return name{}
	}
	list := endings[byEnding[pairOf(norm[len(norm)-2], norm[len(norm)-1])]]
	for i := range list {
		row := &list[i]
		at := len(norm) - len(row.text)
		if at < 0 || norm[at] != row.text[0] || string(norm[at:]) != row.text {
			continue
		}
		if row.exact && (len(norm) != len(row.text) || !whole) {
			continue
		}
		return *row
	}
	return name{}
}

// CredentialName reports whether a key or a header name says that its value is
// a credential.
func CredentialName(s string) bool { return lookup(s).s == strong }

// random reports whether v looks like key material: 20 bytes or more of one
// alphabet, digits and both cases mixed, many different bytes, and none of the
// forms that identifiers and digests have.
func random(v string) bool { return run(v, 0, bearerc) == len(v) && mixed(v) }

// mixed is random but for the alphabet, in bounded time.
func mixed(v string) bool {
	if len(v) < 20 || len(v) > maxValueWindow {
		return false
	}
	var seen [2]uint64
	all := uint16(0)
	for i := 0; i < len(v) && i < 64; i++ {
		all |= classOf[v[i]]
		seen[v[i]>>6&1] |= 1 << (v[i] & 63)
	}
	distinct := bits.OnesCount64(seen[0]) + bits.OnesCount64(seen[1])
	return distinct >= 12 && all&digit != 0 && all&lower != 0 && all&upper != 0 && !identifier(v)
}

// identifier reports whether v is one of the forms that are known not to be
// secret: UUIDs, digests, the protocols' ids, trace contexts.
func identifier(v string) bool {
	for _, p := range []string{"evt_", "call_", "sess_", "sub_", "out_", "sha256:", "hmac-sha256:", "salted-sha256:"} {
		if len(v) > len(p) && v[:len(p)] == p {
			return true
		}
	}
	hex := 0
	for i := 0; i < len(v); i++ {
		switch c := lowerASCII(v[i]); {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f':
			hex++
		case c != '-':
			return false
		}
	}
	return hex == 32 || hex == 40 || hex == 52 || hex == 64 // UUID or MD5, SHA-1, traceparent, SHA-256
}

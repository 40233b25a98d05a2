package redact

import (
	"math/bits"
	"slices"
	"strings"
)

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
	word  bool // of another language
	line  bool // a header: in a text its value reaches to the end of the line
}

// ownNames holds what is a credential by its name; of several that a name ends with
// the longest counts. Rows with strength none are exceptions to shorter rows.
var ownNames = []name{
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

// passOwners stand in front of pass where it means a password: user_pass, X-Db-Pass.
// Without one of them it means many things (first_pass, bypass, boarding_pass).
var passOwners = strings.Fields(`user usr db database sql mysql pg postgres redis mongo rabbit ldap auth login account admin root sudo smtp imap mail email ftp sftp ssh
	proxy wifi wlan vpn rdp vnc key keystore truststore store tls ssl cert svc api unlock zip archive pdf enc encryption`)

// foreignRows are words of other languages in ASCII letters; see foreignWords for the rest.
var foreignRows = strings.Fields("passwort kennwort wachtwoord motdepasse contrasena contrasenya palavrapasse haslo sifre losenord lozenord jelszo salasana adgangskode passord lozinka slaptazodis parool katasandi matkhau")

// names are all rows.
var names = func() []name {
	all := slices.Clone(ownNames)
	for _, owner := range passOwners {
		all = append(all, name{text: owner + "pass", s: strong})
	}
	for _, row := range foreignRows {
		all = append(all, name{text: row, s: strong, prose: true})
	}
	return append(all, name{text: "senha", s: strong, exact: true, prose: true}, name{text: "parola", s: strong, exact: true, prose: true},
		name{text: "heslo", s: strong, exact: true, prose: true}, name{text: "clave", s: weak, exact: true})
}()

// endingBits says by one letter whether any name ends with it, to spare most
// separators the rest.
var endingBits = func() (t [256]bool) {
	for _, n := range names {
		c := n.text[len(n.text)-1]
		t[c], t[upperASCII(c)] = true, true
	}
	return t
}()

// endingPairs says by the last two bytes of a word in a text whether a name may
// end with them. A sign between them is passed over by lookup, so a word that
// has one is let through.
var endingPairs = func() (t [1 << 16]bool) {
	for _, n := range names {
		x, y := n.text[len(n.text)-2], n.text[len(n.text)-1]
		for _, x := range [...]byte{x, upperASCII(x), '-', '_'} {
			t[pairOf(x, y)], t[pairOf(x, upperASCII(y))] = true, true
		}
	}
	for _, value := range [...]string{"ue", "UE"} { // value, see pairedName
		t[pairOf(value[0], value[1])] = true
	}
	return t
}()

func pairOf(a, b byte) uint16 { return uint16(a)<<8 | uint16(b) }

// longestName is the length of the longest row of names (see TestLongestName).
const longestName = 18

// Names are looked up from their last letter backwards, in a tree of both tables:
// the deepest row on the way is the longest name that the key ends with.
const nameSigns = 36 // a-z 0-9

type nameNode struct {
	next           [nameSigns]uint16 // 0: none
	name, personal uint8             // 1 + index in names and in personal; 0: none
}

var nameTree = func() []nameNode {
	tree := make([]nameNode, 1, 1024)
	insert := func(text string) *nameNode {
		at := 0
		for i := len(text) - 1; i >= 0; i-- {
			sign := nameSign[text[i]] - 1
			if tree[at].next[sign] == 0 {
				tree = append(tree, nameNode{})
				tree[at].next[sign] = uint16(len(tree) - 1)
			}
			at = int(tree[at].next[sign])
		}
		return &tree[at]
	}
	for i, n := range names {
		insert(n.text).name = uint8(i + 1)
	}
	for i, f := range personal {
		insert(f.text).personal = uint8(i + 1)
	}
	return tree
}()

// nameSign numbers letters, whatever their case, and digits from 1; signs that
// names are read without are 0, other bytes end a name.
var nameSign = func() (t [256]uint8) {
	for c := range t {
		switch l := lowerASCII(byte(c)); {
		case l >= 'a' && l <= 'z':
			t[c] = l - 'a' + 1
		case l >= '0' && l <= '9':
			t[c] = l - '0' + 27
		case c >= 0x80:
			t[c] = foreign
		}
	}
	return t
}()

const foreign = 255

// find gives the rows of a name in both tables, as indexes from 1; 0 for none.
// Only the last letters decide: what stands in front of them does not count but
// for rows that must be all of it.
func find(s string) (credential, private uint8) {
	node := uint16(0)
	for i := len(s) - 1; i >= 0; i-- {
		sign := nameSign[s[i]]
		if sign == 0 {
			continue
		}
		if sign == foreign {
			break
		}
		if node = nameTree[node].next[sign-1]; node == 0 {
			break
		}
		n := &nameTree[node]
		if n.name|n.personal == 0 {
			continue
		}
		if n.name > 0 && (!names[n.name-1].exact || allRead(s[:i])) {
			credential = n.name
		}
		if n.personal > 0 && (!personal[n.personal-1].exact || allRead(s[:i])) {
			private = n.personal
		}
	}
	return credential, private
}

// allRead reports whether nothing that counts is left in front of a name.
func allRead(rest string) bool {
	for i := len(rest) - 1; i >= 0; i-- {
		if nameSign[rest[i]] != 0 {
			return false
		}
	}
	return true
}

// lookup finds the row of a name; a row of strength none when there is none.
func lookup(s string) name {
	if i, _ := find(s); i > 0 {
		return names[i-1]
	}
	if endsWithWord(s) {
		return wordName
	}
	return name{}
}

// CredentialName reports whether a key or a header name says that its value is
// a credential.
func CredentialName(s string) bool { return lookup(s).s == strong }

const (
	minRandom = 20 // bytes of a value that is judged by its randomness
	dullReach = 16 // behind the beginning of one that is not random, none is looked for
)

// random reports whether v looks like key material: 20 bytes or more of one
// alphabet, digits and both cases mixed, many different bytes, and none of the
// forms that identifiers and digests have.
func random(v string) bool { return run(v, 0, bearerc) == len(v) && mixed(v) }

// mixed is random but for the alphabet, in bounded time.
func mixed(v string) bool {
	if len(v) < minRandom || len(v) > maxValueWindow {
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
	for _, p := range []string{"evt_", "call_", "sess_", "sub_", "out_", "sha256:", "hmac-sha256:", "session-hmac-sha256:", "salted-sha256:"} {
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

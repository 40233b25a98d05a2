package redact

import (
	"math/bits"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// strength says how much a name alone proves about its value.
type strength int

const (
	noStrength strength = iota
	weakName            // the value is a secret if it looks random (isRandomMix)
	likely              // the value is a secret if it looks like a password (passwordLike)
	strongName          // the value is a secret
)

// nameRule is one row of the table of credential names. Names are compared after normalising:
// NFKD, lower case, only letters and digits, so that api_key, Api-Key, apiKey and the same in
// full-width letters are equal. Digits at the end of a name count only if a rule has them:
// passwd2 matches passwd.
type nameRule struct {
	text     string
	strength strength
	exact    bool // false: a name that ends with text matches too (github_token)
	prose    bool // also an everyday word: "token: a" in a text proves nothing
	word     bool // a word of a language other than English
	many     bool // a plural: a number as its value is a count
	line     bool // a header: in a text its value reaches to the end of the line
}

// ownNameRules are the names of credentials. If a name ends with several of them, the longest
// counts. Rules with noStrength are exceptions to shorter rules.
var ownNameRules = []nameRule{
	{text: "replytoken"}, {text: "continuationtoken"}, {text: "idempotencytoken"}, {text: "pagetoken"},
	{text: "nexttoken"}, {text: "synctoken"}, {text: "pertoken"}, {text: "maxtoken"}, {text: "publickey"},
	{text: "signingkeys"}, // a key set is published: the parties' public keys (JWK Set, AUMP profiles)
	{text: "idempotencykey"}, {text: "partitionkey"}, {text: "primarykey"}, {text: "foreignkey"}, {text: "cachekey"},

	{text: "password", strength: strongName}, {text: "passwd", strength: strongName}, {text: "passphrase", strength: strongName},
	{text: "pwd", strength: strongName}, {text: "passcode", strength: strongName},
	{text: "secretaccesskey", strength: strongName}, {text: "secretkey", strength: strongName}, {text: "privatekey", strength: strongName},
	{text: "apikey", strength: strongName}, {text: "accountkey", strength: strongName}, {text: "accesskey", strength: strongName},
	{text: "signingkey", strength: strongName}, {text: "encryptionkey", strength: strongName}, {text: "masterkey", strength: strongName},
	{text: "deploykey", strength: strongName}, {text: "sharedkey", strength: strongName}, {text: "authkey", strength: strongName},
	{text: "secret", strength: strongName, prose: true}, {text: "clientsecret", strength: strongName},
	{text: "token", strength: strongName, prose: true}, {text: "accesstoken", strength: strongName}, {text: "refreshtoken", strength: strongName},
	{text: "sessiontoken", strength: strongName}, {text: "authtoken", strength: strongName}, {text: "securitytoken", strength: strongName},
	{text: "apitoken", strength: strongName}, {text: "idtoken", strength: strongName},
	{text: "authorization", strength: strongName, exact: true, prose: true, line: true},
	{text: "proxyauthorization", strength: strongName, exact: true, line: true},
	{text: "authorizationheader", strength: strongName}, {text: "authheader", strength: strongName},
	{text: "cookie", strength: strongName, prose: true, line: true}, {text: "setcookie", strength: strongName, line: true},
	{text: "cookies", strength: strongName, exact: true, prose: true, line: true},
	{text: "credential", strength: strongName, prose: true}, {text: "credentials", strength: strongName, prose: true},
	{text: "bearer", strength: strongName, exact: true, prose: true}, {text: "jwt", strength: strongName, exact: true, prose: true},
	{text: "fromliteral", strength: strongName, exact: true},                                   // of kubectl create secret
	{text: "secretstring", strength: strongName}, {text: "secretbinary", strength: strongName}, // of AWS Secrets Manager
	{text: "rediscliauth", strength: strongName, exact: true}, {text: "masterauth", strength: strongName, exact: true}, {text: "psk", strength: strongName, exact: true, prose: true},
	{text: "connectionstring", strength: strongName}, {text: "seedphrase", strength: strongName}, {text: "recoveryphrase", strength: strongName},
	{text: "mnemonic", strength: strongName, exact: true, prose: true}, {text: "otp", strength: strongName, exact: true},
	{text: "otpcode", strength: strongName}, {text: "mfacode", strength: strongName}, {text: "verificationcode", strength: strongName}, {text: "activationcode", strength: strongName},
	{text: "accesscode", strength: strongName}, {text: "recoverycode", strength: strongName}, {text: "backupcode", strength: strongName}, {text: "securityanswer", strength: strongName},
	{text: "jsessionid", strength: strongName, exact: true}, {text: "phpsessid", strength: strongName, exact: true}, {text: "netsessionid", strength: strongName}, // of ASP.NET
	{text: "xamzsignature", strength: strongName, exact: true}, {text: "xgoogsignature", strength: strongName, exact: true},

	{text: "key", strength: weakName}, {text: "auth", strength: weakName}, {text: "sig", strength: weakName, exact: true},
	{text: "pass", strength: likely, exact: true}, {text: "pw", strength: likely, exact: true}, {text: "cred", strength: weakName, exact: true},
	{text: "creds", strength: weakName, exact: true},
}

// passOwners are the words before pass with which it means a password: user_pass, X-Db-Pass.
// Without one of them pass has many meanings (first_pass, bypass, boarding_pass).
var passOwners = strings.Fields(`user usr db database sql mysql pg postgres redis mongo rabbit ldap auth login account admin root sudo become require smtp imap mail email ftp sftp ssh
	proxy wifi wlan vpn rdp vnc key keystore truststore store tls ssl cert svc api unlock zip archive pdf enc encryption`)

// foreignRows are words of other languages in ASCII letters; foreignWords has the rest.
var foreignRows = strings.Fields("passwort kennwort wachtwoord motdepasse contrasena contrasenya palavrapasse haslo sifre losenord lozenord jelszo salasana adgangskode passord lozinka slaptazodis parool katasandi matkhau")

// qualifiers are words after the name of a credential with which its value is still a
// credential: PASSWORD_HASH, secretValue, key_b64, DB_PASSWORD_PROD, SECRET_V2. Other words change that: password_policy,
// token_type.
var qualifiers = strings.Fields(`hash sha md digest value plain plaintext raw hex b base enc encrypted confirm confirmation repeat again retype
	prod production stage staging dev test live old new current previous prev primary secondary backup v ro rw`)

// tokenRow is the rule without a plural: tokens are a count more often than a credential.
const tokenRow = "token"

// derivedRows makes the plurals of strong rules, and of all rules forms with a qualifier after
// them. The derived rules of an exception are exceptions.
func derivedRows(rows []nameRule) (derived []nameRule) {
	for _, row := range rows {
		if row.strength != strongName && row.strength != noStrength || row.exact {
			continue
		}
		for _, q := range qualifiers {
			with := row
			with.text, with.line = row.text+q, false
			derived = append(derived, with)
		}
		plural := row
		plural.text, plural.many = row.text+"s", true
		listed := slices.ContainsFunc(rows, func(r nameRule) bool { return r.text == plural.text })
		if row.strength == strongName && row.text != tokenRow && !listed && !strings.HasSuffix(row.text, "s") {
			derived = append(derived, plural)
		}
	}
	return derived
}

// nameRules are all rules for names.
var nameRules = func() []nameRule {
	all := append(slices.Clone(ownNameRules), derivedRows(ownNameRules)...)
	for _, owner := range passOwners {
		all = append(all, nameRule{text: owner + "pass", strength: strongName})
	}
	for _, row := range foreignRows {
		all = append(all, nameRule{text: row, strength: strongName, prose: true})
	}
	return append(all, nameRule{text: "senha", strength: strongName, exact: true, prose: true}, nameRule{text: "parola", strength: strongName, exact: true, prose: true},
		nameRule{text: "heslo", strength: strongName, exact: true, prose: true}, nameRule{text: "clave", strength: weakName, exact: true})
}()

// endingBits says by one byte whether any name ends with it. It excludes most separators early.
var endingBits = func() (t [256]bool) {
	for _, n := range nameRules {
		c := n.text[len(n.text)-1]
		t[c], t[upperASCII(c)] = true, true
	}
	return t
}()

func pairOf(a, b byte) uint16 { return uint16(a)<<8 | uint16(b) }

// longestName is the length of the longest rule that is not derived (see TestLongestName). Of a
// name in a text twice as many bytes are read.
const longestName = 19

// Names are looked up from their last letter backwards, in one tree of both tables. The deepest
// rule on the path is the longest name that the key ends with.
const nameSigns = 36 // a-z 0-9

type nameNode struct {
	next           [nameSigns]uint16 // 0: none
	name, personal uint16            // 1 + index in nameRules and in personalFields; 0: none
}

var nameTree = func() []nameNode {
	tree := make([]nameNode, 1, 16200)
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
	for i, n := range nameRules {
		insert(n.text).name = uint16(i + 1)
	}
	for i, f := range personalFields {
		insert(f.text).personal = uint16(i + 1)
	}
	return tree
}()

// nameSign numbers letters, in either case, and digits from 1. It is 0 for signs, which lookups
// skip, and foreign for bytes of other characters.
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

// findRules returns the rules of a name in both tables, as indexes from 1; 0 for none.
func findRules(s string) (credential, private uint16) {
	credential, private = findLetters(s)
	if credential == 0 {
		if stem := withoutNumber(s); len(stem) < len(s) {
			credential, _ = findLetters(stem)
		}
	}
	return credential, private
}

// findLetters is findRules without removing a number at the end. Only the end of the name
// decides, except for exact rules, which must cover all of it.
func findLetters(s string) (credential, private uint16) {
	node := uint16(0)
	for i := len(s); i > 0; {
		letters := s[i-1 : i]
		if i--; nameSign[letters[0]] == foreign {
			r, size := utf8.DecodeLastRuneInString(s[:i+1])
			i -= size - 1
			var known bool
			if letters, known = plainLetters(r); !known {
				break
			}
		}
		for k := len(letters) - 1; k >= 0; k-- {
			sign := nameSign[letters[k]]
			if sign == 0 {
				continue
			}
			if node = nameTree[node].next[sign-1]; node == 0 {
				return credential, private
			}
			n := &nameTree[node]
			if n.name|n.personal == 0 {
				continue
			}
			if n.name > 0 && (!nameRules[n.name-1].exact || isPrefixRead(s[:i])) {
				credential = n.name
			}
			if n.personal > 0 && (!personalFields[n.personal-1].exact || isPrefixRead(s[:i])) {
				private = n.personal
			}
		}
	}
	return credential, private
}

// mayEndName reports whether a name may end where s ends, by its last bytes: most words before a separator end otherwise.
func mayEndName(s string) bool {
	const enough = 6
	if n := len(s); n >= 2 && lowerASCII(s[n-2]) == 'u' && lowerASCII(s[n-1]) == 'e' { // value, see pairedName
		return true
	}
	node := uint16(0)
	for i := len(s) - 1; i >= 0 && i >= len(s)-enough; i-- {
		switch sign := nameSign[s[i]]; {
		case sign == foreign:
			return true
		case sign > 0:
			if node = nameTree[node].next[sign-1]; node == 0 {
				return false
			}
			if nameTree[node].name > 0 {
				return true
			}
		case byteClass[s[i]]&dash == 0: // the word is over
			return false
		}
	}
	return true
}

// plainLetters are the ASCII letters of a character's compatibility decomposition (NFKD): those
// of full-width and mathematical letters and of ligatures, and letters without their accents.
// Marks and invisible characters have none. known is false for a character of another script.
func plainLetters(r rune) (letters string, known bool) {
	switch {
	case r >= fullWidth+'!' && r <= fullWidth+'~':
		return asciiText[r-fullWidth:][:1], true
	case r == utf8.RuneError:
		return "", false
	case unicode.In(r, unicode.Cf, unicode.Mn):
		return "", true
	}
	var room [utf8.UTFMax]byte
	parts := norm.NFKD.Properties(room[:utf8.EncodeRune(room[:], r)]).Decomposition()
	for len(parts) > 0 && parts[0] < utf8.RuneSelf {
		letters, parts = letters+string(rune(parts[0])), parts[1:]
	}
	return letters, letters != ""
}

// fullWidth is the distance from ASCII letters to full-width letters.
const fullWidth = '！' - '!'

// asciiText has every ASCII character at its own index.
var asciiText = func() string {
	var b [utf8.RuneSelf]byte
	for i := range b {
		b[i] = byte(i)
	}
	return string(b[:])
}()

// withoutNumber removes the number at the end of a name, and the signs around and in it: passwd2,
// PASSWORD_02, password[0].
func withoutNumber(s string) string {
	end, digits := len(s), false
	for end > 0 {
		r, size := utf8.DecodeLastRuneInString(s[:end])
		isNumber := r >= '0' && r <= '9' || r >= fullWidth+'0' && r <= fullWidth+'9'
		if !isNumber && nameSign[s[end-1]] != 0 {
			break
		}
		digits = digits || isNumber
		end -= size
	}
	if !digits {
		return s
	}
	return s[:end]
}

// maxComposed is how many bytes at the end of a name are normalised.
const maxComposed = 2 * maxIdent

// composed returns the end of a name in NFKC if it ends with a half-width letter or a mark, which
// NFKC can turn into a word of foreignWords. Otherwise it returns the name.
func composed(s string) string {
	if !apart(s) {
		return s
	}
	return norm.NFKC.String(strings.ToValidUTF8(s[max(0, len(s)-maxComposed):], ""))
}

// apart reports whether one of the last two characters of a name is a half-width letter or a
// mark.
func apart(s string) bool {
	for range 2 {
		r, size := utf8.DecodeLastRuneInString(s)
		if r >= '｡' && r <= 'ﾟ' || r >= 0x80 && unicode.Is(unicode.Mn, r) {
			return true
		}
		s = s[:len(s)-size]
	}
	return false
}

// isPrefixRead reports whether the rest before a match holds only signs.
func isPrefixRead(rest string) bool {
	for i := len(rest) - 1; i >= 0; i-- {
		if nameSign[rest[i]] != 0 {
			return false
		}
	}
	return true
}

// lookupName returns the rule for a name, or one of noStrength.
func lookupName(s string) nameRule {
	if i, _ := findRules(s); i > 0 {
		return nameRules[i-1]
	}
	if endsWithWord(s) || endsWithWord(composed(s)) {
		return wordName
	}
	return nameRule{}
}

// credentialName reports whether a key or a header name says that its value is a credential.
func credentialName(s string) bool { return lookupName(s).strength == strongName }

// proves reports whether the name says that a value of its own, not a part of a text, is a
// credential.
func (n nameRule) proves(value string) bool {
	switch n.strength {
	case strongName:
		return true
	case likely:
		return passwordLike(value)
	}
	return false
}

const (
	minPassword = 6   // least bytes of a value that passwordLike judges
	maxPassword = 128 // greatest number of them
)

// passwordLike reports whether v looks like a password and not like a word, a count, a date or
// a path: one word of letters that has a digit, or a sign before its end.
func passwordLike(v string) bool {
	if len(v) < minPassword || len(v) > maxPassword || isIdentifier(v) || strings.ContainsAny(v, " \t\r\n/:") || isDigit(v[0]) && strings.IndexByte(v, '-') > 0 {
		return false
	}
	all := uint16(0)
	for i := range len(v) {
		all |= byteClass[v[i]]
	}
	return all&letter != 0 && (all&digit != 0 || strings.ContainsAny(v[:len(v)-1], passwordSigns))
}

const passwordSigns = "!@#$%^&*?~+="

const (
	minRandom      = 20 // least bytes of a value that isRandomMix judges
	notRandomReach = 16 // no random value begins so many bytes after the start of a non-random one
)

// isRandom reports whether v looks like key material: 20 bytes or more of one alphabet, digits
// and both cases mixed, many different bytes, and no known form of identifier or digest.
func isRandom(v string) bool { return runEnd(v, 0, bearerc) == len(v) && isRandomMix(v) }

// isRandomMix is isRandom without the check of the alphabet, in bounded time.
func isRandomMix(v string) bool {
	if len(v) < minRandom || len(v) > maxValueWindow {
		return false
	}
	var seen [2]uint64
	all := uint16(0)
	for i := 0; i < len(v) && i < 64; i++ {
		all |= byteClass[v[i]]
		seen[v[i]>>6&1] |= 1 << (v[i] & 63)
	}
	distinct := bits.OnesCount64(seen[0]) + bits.OnesCount64(seen[1])
	return distinct >= 12 && all&digit != 0 && all&lower != 0 && all&upper != 0 && !isIdentifier(v)
}

// isIdentifier reports whether v has one of the forms that are known not to be secret: UUIDs,
// digests, the protocols' ids, trace contexts.
func isIdentifier(v string) bool {
	for _, p := range []string{"evt_", "call_", "sess_", "sub_", "out_", "sha256:", "hmac-sha256:", "session-hmac-sha256:", "salted-sha256:"} {
		if len(v) > len(p) && v[:len(p)] == p {
			return true
		}
	}
	hex := 0
	for i := range len(v) {
		switch c := lowerASCII(v[i]); {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f':
			hex++
		case c != '-':
			return false
		}
	}
	return hex == 32 || hex == 40 || hex == 52 || hex == 64 // UUID or MD5, SHA-1, traceparent, SHA-256
}

package redact

import (
	"strings"
)

// foreignWords are words for password and the like in other languages, with letters beyond ASCII
// or of several words; rules for names have only ASCII letters. If a name, or the words before
// a separator, end with one of these in any case, the value is a credential.
var foreignWords = []string{
	"пароль", "пароля", "парола", "лозинка", "құпиясөз", "секретный ключ", "токен доступа",
	"密码", "密碼", "口令", "密钥", "密鑰", "パスワード", "暗証番号", "秘密鍵", "비밀번호", "패스워드", "암호",
	"كلمة المرور", "كلمة السر", "كلمه المرور", "رمز عبور", "گذرواژه", "پاس ورڈ", "סיסמה", "סיסמא", "पासवर्ड", "পাসওয়ার্ড", "รหัสผ่าน",
	"κωδικός πρόσβασης", "κωδικόσ πρόσβασησ", "συνθηματικό", "գաղտնաբառ", "პაროლი",
	"contraseña", "contrasenya", "contrasinal", "mot de passe", "palavra-passe", "palavra passe", "código de acesso",
	"hasło", "şifre", "ŞİFRE", "şifresi", "ŞİFRESİ", "şifrə", "lösenord", "jelszó", "slaptažodis", "mật khẩu", "kata sandi", "kata laluan", "aðgangsorð", "lykilorð", "heslo", "fjalëkalim",
}

// wordReach is how far before a separator a word can begin; longestWord is the length of the
// longest word (see TestLongestWord).
const wordReach = longestWord + 1

const longestWord = 33

// wordsBy maps the last two bytes of a word, in either case, to the words. Words with blanks are
// also there with _ instead, as in keys.
var wordsBy = func() map[uint16][]string {
	by := map[uint16][]string{}
	for _, w := range foreignWords {
		forms := []string{w}
		if strings.Contains(w, " ") {
			forms = append(forms, strings.ReplaceAll(w, " ", "_"))
		}
		for _, form := range forms {
			upper := strings.ToUpper(form)
			last := pairOf(form[len(form)-2], form[len(form)-1])
			by[last] = append(by[last], form)
			if other := pairOf(upper[len(upper)-2], upper[len(upper)-1]); other != last {
				by[other] = append(by[other], form)
			}
		}
	}
	return by
}()

// wordEnds says by the last two bytes of a text whether a word may end there.
var wordEnds = func() (pairs [1 << 16]bool) {
	for pair := range wordsBy {
		pairs[pair] = true
	}
	return pairs
}()

// endsWithWord reports whether a name or a text ends with one of foreignWords.
func endsWithWord(s string) bool {
	if len(s) < 2 {
		return false
	}
	last := pairOf(s[len(s)-2], s[len(s)-1])
	if !wordEnds[last] {
		return false
	}
	for _, w := range wordsBy[last] {
		if at := len(s) - len(w); at >= 0 && strings.EqualFold(s[at:], w) && startsWord(s[:at], w) {
			return true
		}
	}
	return false
}

// startsWord reports whether a word may begin after head: a word that begins with an ASCII letter
// does not begin inside another word.
func startsWord(head, w string) bool {
	return head == "" || w[0] >= 0x80 || byteClass[head[len(head)-1]]&letter == 0 || afterEscape(head, len(head))
}

// wordName is the rule for all of foreignWords.
var wordName = nameRule{text: "password", strength: strongName, prose: true, word: true}

// The full-width colon and equals sign, which Chinese and Japanese texts use for : and =.
const (
	wideColon  = "\uff1a"
	wideEquals = "\uff1d"
)

// scanWideSeparator handles a full-width separator with its last byte at i.
func (sc *textScanner) scanWideSeparator(i int) {
	start := i - len(wideColon) + 1
	if start < 2 || sc.s[start:i+1] != wideColon && sc.s[start:i+1] != wideEquals {
		return
	}
	if n, end := sc.nameBefore(start); n.strength != noStrength && end > 0 {
		sc.addSecretValue(n, i+1, true)
	}
}

// pairNames are the keys of a value's name, as in {"name": "DB_PASSWORD", "value": "…"};
// pairValues are the keys of the value. Both are in lower case.
var (
	pairNames = map[string]bool{"name": true, "key": true, "header": true, "field": true, "variable": true, "var": true, "env": true, "envvar": true,
		"parameter": true, "param": true, "option": true, "setting": true, "property": true, "attribute": true, "label": true, "k": true, "n": true,
		"parametername": true, "parameterkey": true, "optionname": true, "settingname": true, "attributename": true, "propertyname": true, "keyname": true,
		"headername": true, "fieldname": true, "variablename": true, "varname": true}
	pairValues = map[string]bool{"value": true, "val": true, "v": true, "parametervalue": true, "optionvalue": true, "settingvalue": true,
		"attributevalue": true, "propertyvalue": true, "headervalue": true, "fieldvalue": true, "variablevalue": true, "stringvalue": true, "keyvalue": true}
)

// pairKey normalises a key for pairNames and pairValues: lower case, without _ - and dots.
func pairKey(k string) string {
	if len(k) > 20 {
		return ""
	}
	if pairNames[k] || pairValues[k] {
		return k
	}
	return pairSigns.Replace(strings.ToLower(k))
}

var pairSigns = strings.NewReplacer("_", "", "-", "", ".", "")

// pairReach is how far before its value the name of a pair may be in a text, in bytes.
const pairReach = 96

// pairedName returns the rule of a credential name beside a value in a text: name: DB_PASSWORD,
// value: …. The word before the separator is s[j:end].
func (sc *textScanner) pairedName(j, end int) (n nameRule) {
	s := sc.s
	if end-j > 20 || lowerASCII(s[end-2]) != 'u' || lowerASCII(s[end-1]) != 'e' || !pairValues[pairKey(s[j:end])] {
		return n
	}
	sc.budget.charge(60)
	from := max(0, j-pairReach)
	back := func(i int, class uint16, more string) int {
		for i > from && (byteClass[s[i-1]]&class != 0 || strings.IndexByte(more, s[i-1]) >= 0) {
			i--
		}
		return i
	}
	to := back(j, space|quoteChar, `,;{\-`)
	start := back(to, word|dot, "")
	if start == to {
		return n
	}
	sign := back(start, space|quoteChar, `\`)
	if sign == from || s[sign-1] != ':' && s[sign-1] != '=' {
		return n
	}
	keyEnd := back(sign-1, space|quoteChar, `\`)
	if key := back(keyEnd, word, ""); pairNames[pairKey(s[key:keyEnd])] && credentialName(s[start:to]) {
		return nameRule{text: "password", strength: strongName}
	}
	return n
}

// scanClosingTag handles </password>; i is the position of the slash.
func (sc *textScanner) scanClosingTag(i int) {
	s := sc.s
	end := runEnd(s[:min(len(s), i+2*maxIdent)], i+1, word|dot)
	if end < len(s) && s[end] == ':' { // a namespace prefix
		end = runEnd(s[:min(len(s), end+2*maxIdent)], end+1, word|dot)
	}
	sc.budget.charge(15 + 2*(end-i))
	if end == i+1 || end >= len(s) || s[end] != '>' {
		return
	}
	tag := s[i+1 : end]
	if !credentialName(tag) {
		return
	}
	to := i - 1
	least := max(0, to-maxValueWindow)
	from := strings.LastIndexByte(s[least:to], '>') + 1
	sc.budget.charge((to - least - from) / 4)
	if from == 0 {
		return
	}
	from += least
	inner := from
	if cdata := strings.LastIndex(s[least:to], "<![CDATA["); cdata >= 0 && strings.HasSuffix(s[:to], "]]>") {
		from, inner, to = least+cdata, least+cdata+len("<![CDATA["), to-len("]]>")
	}
	open := strings.LastIndexByte(s[max(0, from-4*maxIdent):from], '<')
	if open < 0 || inner > to || !strings.HasPrefix(s[max(0, from-4*maxIdent)+open+1:], tag) {
		return
	}
	from = inner
	for from < to && byteClass[s[from]]&space != 0 {
		from++
	}
	for to > from && byteClass[s[to-1]]&space != 0 {
		to--
	}
	if !isHarmlessValue(s[from:to]) {
		sc.addSpan(from, to, Assignment)
	}
}

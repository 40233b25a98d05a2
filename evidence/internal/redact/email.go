package redact

// Longest parts of an e-mail address that the scanner reads (RFC 5321, 4.5.3.1).
const (
	maxMailLocal  = 64
	maxMailDomain = 255
)

// scanEmail handles the address around the @ at i. It looks for the local part no further back
// than the previous address, so that no byte is read twice.
func (sc *textScanner) scanEmail(i int) {
	s := sc.s
	sc.budget.charge(25)
	if i < int(sc.seen[urlRule]) || i+1 >= len(s) {
		return // user:password@host: urlRule finds the secret there
	}
	from := i
	for from > sc.mail && i-from < maxMailLocal && byteClass[s[from-1]]&mailLocal != 0 {
		from--
	}
	to := i + 1
	for to < len(s) && to-i <= maxMailDomain && (byteClass[s[to]]&mailDomain != 0 || s[to] >= 0x80) {
		to++
	}
	sc.mail = to
	for to > i+1 && byteClass[s[to-1]]&(dash|dot) != 0 {
		to--
	}
	for from < i && (byteClass[s[from]]&(dash|dot) != 0 || s[from] == '%') {
		from++
	}
	if from < i && mailHost(s[i+1:to]) && (to == len(s) || s[to] != ':' || s[from:i] != "git") {
		sc.addSpan(from, to, Email)
	}
}

// mailHost reports whether a host has a dot and ends in a possible top-level domain: pkg@1.2.3
// and logo@2x.png are no addresses.
func mailHost(host string) bool {
	at := len(host)
	for at > 0 && host[at-1] != '.' {
		at--
	}
	top := host[at:]
	if at < 2 || len(top) < 2 || len(top) > 24 || byteClass[host[0]]&dash != 0 {
		return false
	}
	for i := range len(top) {
		if byteClass[top[i]]&letter == 0 && top[i] < 0x80 && (len(top) < 6 || top[:4] != "xn--") {
			return false
		}
	}
	if len(top) > 5 {
		return true
	}
	var buf [5]byte
	for i := range len(top) {
		buf[i] = lowerASCII(top[i])
	}
	return !fileEndings[string(buf[:len(top)])]
}

// fileEndings are file name extensions that look like top-level domains.
var fileEndings = map[string]bool{
	"png": true, "jpg": true, "jpeg": true, "gif": true, "svg": true, "webp": true, "ico": true, "bmp": true, "tiff": true,
	"js": true, "ts": true, "mjs": true, "jsx": true, "tsx": true, "css": true, "scss": true, "html": true, "htm": true,
	"json": true, "yaml": true, "yml": true, "xml": true, "toml": true, "txt": true, "csv": true, "pdf": true,
	"tgz": true, "gz": true, "tar": true, "jar": true, "whl": true, "deb": true, "rpm": true, "exe": true, "dll": true,
	"go": true, "cpp": true, "java": true, "class": true, "lock": true, "log": true, "local": true,
}

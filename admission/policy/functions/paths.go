package functions

import (
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/countersign-dev/countersign/admission/policy/functions/shell"
	"github.com/countersign-dev/countersign/events/casefold"
)

// maxPath is the longest path that is compared, in bytes.
const maxPath = 4096

// joinPaths is a path seen from a directory, Unknown if it is too long.
func joinPaths(dir, p string) string {
	if len(dir)+len(p) > maxPath {
		return Unknown
	}
	return shell.Join(dir, p)
}

// Within reports whether a path certainly names root or something below it, by its text alone: links
// are not followed. A relative path is seen from root. It is false for a path with an unknown part,
// and for one that a file system could read as another: control or invisible characters,
// backslashes, a Unicode form other than NFC. Upper and lower case differ.
func Within(p, root string) bool {
	if !rooted(root) || !plainPath(p) || !plainPath(root) {
		return false
	}
	return below(shell.Join(root, p), shell.Join("/", root))
}

// touches reports whether a path may name root or something below it. It ignores case and forms of
// Unicode, and is true for a path with an unknown part, for one that cannot be compared, and for a
// relative one that leads upwards. Other relative paths touch nothing: join them to a directory first. Any
// directory may be the home that ~ stands for. A root that is relative can be anywhere.
func touches(p, root string) bool {
	if strings.Contains(p, Unknown) || !utf8.ValidString(p) || len(p) > maxPath {
		return true
	}
	p, root = foldPath(shell.Join("", visible(p))), foldPath(shell.Join("", root))
	switch {
	case strings.Contains(p, Unknown), p == "..", strings.HasPrefix(p, "../"), !rooted(root):
		return true
	case !rooted(p):
		return false
	case root[0] == '~':
		_, inHome, narrow := strings.Cut(root, "/")
		parts := strings.Split(p, "/")
		for i := 1; narrow && i < len(parts); i++ {
			if mayBegin(parts[i:], strings.Split(inHome, "/")) {
				return true
			}
		}
		return !narrow
	}
	return p[0] == '~' || root == "/" || mayBegin(strings.Split(p, "/"), strings.Split(root, "/"))
}

// mayBegin reports whether the parts of a path, which may be patterns, may begin with those of another.
func mayBegin(parts, begin []string) bool {
	for i, name := range begin {
		if i == len(parts) {
			return false
		}
		if strings.ContainsAny(parts[i], "?[{") || strings.Contains(parts[i], "**") {
			return true
		}
		if fits, _ := path.Match(parts[i], name); !fits {
			return false
		}
	}
	return true
}

// rooted reports whether a path begins at the root or at a home directory.
func rooted(p string) bool { return strings.HasPrefix(p, "/") || strings.HasPrefix(p, "~") }

func below(p, root string) bool {
	return p == root || root == "/" && strings.HasPrefix(p, "/") || strings.HasPrefix(p, root+"/")
}

func plainPath(p string) bool {
	if len(p) <= maxPath && !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r > '~' || r == '\\' }) {
		return true
	}
	if len(p) > maxPath || !utf8.ValidString(p) || strings.ContainsAny(p, "\\\x00") || !norm.NFC.IsNormalString(p) {
		return false
	}
	return !strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) })
}

func visible(p string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\\':
			return '/'
		case unicode.Is(unicode.Cf, r) || unicode.IsControl(r):
			return -1
		}
		return r
	}, p)
}

func foldPath(p string) string { return casefold.String(norm.NFKC.String(p)) }

// Address is a URL, or a text that is none.
type Address struct {
	Known  bool   `cel:"known"`  // it is one URL to every reader
	Scheme string `cel:"scheme"` // in lower case
	Host   string `cel:"host"`   // in lower case, without port and final dot
	Port   int64  `cel:"port"`   // 0: none
	User   string `cel:"user"`   // user name before the host; the password is left out
	Path   string `cel:"path"`   // with its escapes; not known if a part of it is . or ..
	Query  string `cel:"query"`  // with its escapes
}

// Size implements Sized.
func (a Address) Size() int64 {
	return int64(len(a.Scheme)+len(a.Host)+len(a.User)+len(a.Path)+len(a.Query)) + 128
}

// ParseAddress reads a URL. A host that is no plain ASCII name or address is not known, and neither is a path
// with . or .. in it: readers differ on them.
func ParseAddress(s string) Address {
	if len(s) > maxPath || strings.ContainsAny(s, "\\\x00 \t\r\n") || strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII || r < ' ' }) {
		return Address{}
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Opaque != "" {
		return Address{}
	}
	a := Address{Scheme: strings.ToLower(u.Scheme), Host: strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), User: u.User.Username(), Path: u.EscapedPath(), Query: u.RawQuery}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return Address{}
		}
		a.Port = int64(n)
	}
	a.Known = plainHost(a.Host) && !hasDotSegment(a.Path)
	return a
}

// hasDotSegment reports whether a part of a path is . or .., which most clients take out before they send it.
func hasDotSegment(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if part = strings.ReplaceAll(strings.ToLower(part), "%2e", "."); part == "." || part == ".." {
			return true
		}
	}
	return false
}

// plainHost reports whether a host is a name of letters, digits, dots and dashes, or an address in its
// usual form: 127.1 and 0x7f000001 are addresses to some readers.
func plainHost(h string) bool {
	if ip, err := netip.ParseAddr(h); err == nil {
		return ip.Zone() == "" && ip.String() == h
	}
	if h == "" || len(h) > 253 || strings.Trim(h, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
		return false
	}
	last := h[strings.LastIndexByte(h, '.')+1:]
	return last != "" && (last[0] < '0' || last[0] > '9') && !strings.Contains(h, "..")
}

// HostMatches is the name of the function that compares a host with patterns.
const HostMatches = "host.matches"

// IsHostPattern reports whether a host can match a pattern.
func IsHostPattern(p string) bool { return plainHost(strings.TrimPrefix(strings.ToLower(p), "*.")) }

// hostMatches reports whether a host is one of the patterns, or, for *.example.org, below
// example.org. Hosts that are not plain match nothing.
func hostMatches(host string, patterns []string) bool {
	h := strings.TrimSuffix(strings.ToLower(host), ".")
	if !plainHost(h) {
		return false
	}
	for _, p := range patterns {
		p = strings.ToLower(p)
		if suffix, wild := strings.CutPrefix(p, "*."); wild && suffix != "" && strings.HasSuffix(h, "."+suffix) || h == p {
			return true
		}
	}
	return false
}

package functions

import (
	"slices"
	"strings"
)

// SQL is the statements of a text.
type SQL struct {
	Known      bool        `cel:"known"` // every statement and table is listed, in every common dialect
	Statements []Statement `cel:"statements"`
}

// Statement is one statement.
type Statement struct {
	Kind   string   `cel:"kind"`   // its first word in lower case, behind WITH the word that acts; "unknown"
	Tables []string `cel:"tables"` // names in lower case without quotes, with their schema, of tables and views
	Reads  bool     `cel:"reads"`  // it only reads: select, show, describe or explain without a writing word in it
}

// Size implements Sized.
func (s SQL) Size() int64 {
	n := int64(64)
	for _, st := range s.Statements {
		n += int64(len(st.Kind)) + 96
		for _, t := range st.Tables {
			n += int64(len(t)) + 16
		}
	}
	return n
}

// Bounds of one text.
const (
	maxSQL        = 64 << 10
	maxStatements = 256
	maxTables     = 1024
)

// writingWords make a statement more than reading, wherever they stand.
var writingWords = strings.Fields("insert update delete merge replace truncate drop alter create grant revoke into call exec execute do copy load attach detach vacuum reindex lock set pragma " +
	"rename handler outfile dumpfile lo_import lo_export pg_read_file pg_sleep dblink xp_cmdshell sp_executesql")

// tableWords stand before a table.
var tableWords = strings.Fields("from join into update table only truncate using describe desc view")

// ParseSQL lists the statements of a text. It is a tokeniser, not a parser: dialects differ, and a
// text that two of them read differently is not known.
func ParseSQL(s string) SQL {
	out := SQL{Statements: []Statement{}}
	if len(s) > maxSQL || strings.ContainsRune(s, 0) {
		return out
	}
	tokens, known := sqlTokens(s)
	out.Known = known
	tables := 0
	for len(tokens) > 0 {
		end := slices.Index(tokens, ";")
		if end < 0 {
			end = len(tokens)
		}
		if end > 0 {
			st, ok := readStatement(tokens[:end])
			tables += len(st.Tables)
			if len(out.Statements) >= maxStatements || tables > maxTables {
				out.Known = false
				return out
			}
			out.Statements, out.Known = append(out.Statements, st), out.Known && ok
		}
		tokens = tokens[min(end+1, len(tokens)):]
	}
	return out
}

// readStatement reads one statement from its tokens.
func readStatement(tokens []string) (Statement, bool) {
	st := Statement{Kind: strings.ToLower(tokens[0]), Tables: []string{}}
	known := isSQLWord(tokens[0])
	depth := 0
	for i, t := range tokens {
		word := strings.ToLower(t)
		switch {
		case t == "(":
			depth++
		case t == ")":
			depth--
		case st.Kind == "with" && depth == 0 && slices.Contains([]string{"select", "insert", "update", "delete", "merge"}, word):
			st.Kind = word
		case slices.Contains(tableWords, word) && i+1 < len(tokens):
			st.addTables(tokens[i+1:])
		}
	}
	if !known {
		st.Kind = "unknown"
	}
	st.Reads = slices.Contains([]string{"select", "show", "describe", "desc", "explain", "values", "table"}, st.Kind) &&
		!slices.ContainsFunc(tokens, func(t string) bool { return slices.Contains(writingWords, strings.ToLower(t)) })
	return st, known
}

// addTables adds the tables that follow a word, separated by commas.
func (st *Statement) addTables(tokens []string) {
	for len(tokens) > 0 {
		for len(tokens) > 0 && slices.Contains([]string{"table", "if", "not", "exists", "only", "lateral", "into"}, strings.ToLower(tokens[0])) {
			tokens = tokens[1:]
		}
		if len(tokens) == 0 || !isSQLWord(tokens[0]) && !isQuotedName(tokens[0]) || slices.Contains([]string{"select", "set", "values", "with"}, strings.ToLower(tokens[0])) {
			return
		}
		name := unquoteName(tokens[0])
		i := 1
		for i+1 < len(tokens) && tokens[i] == "." {
			name += "." + unquoteName(tokens[i+1])
			i += 2
		}
		if name = strings.ToLower(name); !slices.Contains(st.Tables, name) && len(st.Tables) < maxTables {
			st.Tables = append(st.Tables, name)
		}
		if i < len(tokens) && strings.EqualFold(tokens[i], "as") {
			i++
		}
		if i+1 < len(tokens) && isSQLWord(tokens[i]) && tokens[i+1] == "," {
			i++ // an alias
		}
		if i >= len(tokens) || tokens[i] != "," {
			return
		}
		tokens = tokens[i+1:]
	}
}

func isSQLWord(t string) bool {
	return t != "" && (t[0] == '_' || t[0] >= 'a' && t[0] <= 'z' || t[0] >= 'A' && t[0] <= 'Z' || t[0] >= 0x80)
}

func isQuotedName(t string) bool { return len(t) > 1 && strings.ContainsAny(t[:1], "\"`[") }

func unquoteName(t string) string {
	if isQuotedName(t) {
		return t[1 : len(t)-1]
	}
	return t
}

// sqlTokens splits a text into words, quoted names and signs. Texts in quotes become ”. The result
// is not known where dialects differ: backslashes in texts, dollar quotes, # and nested or
// executable comments, and quotes that do not end.
func sqlTokens(s string) (tokens []string, known bool) {
	known = true
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case strings.HasPrefix(s[i:], "--"):
			known = known && (i+2 == len(s) || strings.IndexByte(" \t\n-", s[i+2]) >= 0)
			i = endOf(s, i, "\n")
		case strings.HasPrefix(s[i:], "/*"):
			end := endOf(s, i+2, "*/")
			body := s[i+2 : end]
			known = known && strings.HasSuffix(body, "*/") && !strings.HasPrefix(body, "!") && !strings.HasPrefix(body, "M!") && !strings.Contains(body, "/*")
			i = end
		case c == '\'', c == '"', c == '`', c == '[':
			end, ok := quoteEnd(s, i)
			body := s[i:end]
			known = known && ok && !strings.Contains(body, "\\")
			if c == '\'' {
				body = "''"
			}
			tokens = append(tokens, body)
			i = end
		case isSQLWord(s[i:i+1]) || c >= '0' && c <= '9':
			end := i
			for end < len(s) && (isSQLWord(s[end:end+1]) || s[end] >= '0' && s[end] <= '9' || s[end] == '$') {
				end++
			}
			tokens = append(tokens, s[i:end])
			known = known && !strings.Contains(s[i:end], "$")
			i = end
		default:
			known = known && strings.IndexByte("#$\\\x00@{}", c) < 0 && c >= ' '
			tokens = append(tokens, s[i:i+1])
			i++
		}
	}
	return tokens, known
}

// endOf is the index behind the next mark, or the end.
func endOf(s string, from int, mark string) int {
	if at := strings.Index(s[from:], mark); at >= 0 {
		return from + at + len(mark)
	}
	return len(s)
}

// quoteEnd is the index behind a quoted part, in which the quote twice is one.
func quoteEnd(s string, from int) (int, bool) {
	closing := s[from]
	if closing == '[' {
		closing = ']'
	}
	for i := from + 1; i < len(s); i++ {
		if s[i] != closing {
			continue
		}
		if i+1 < len(s) && s[i+1] == closing {
			i++
			continue
		}
		return i + 1, true
	}
	return len(s), false
}

package functions

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
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
	maxLevels     = 256 // open brackets of one statement
)

// writingWords make a statement more than reading, wherever they stand.
var writingWords = wordSet("insert update delete merge replace truncate drop alter create grant revoke into call exec execute do copy load attach detach vacuum reindex lock set pragma " +
	"rename handler outfile dumpfile nextval")

// beginningWords begin a statement. Behind another word that is not in follows they may begin a second one:
// some databases want no semicolon between two.
var beginningWords = wordSet("insert update delete merge replace truncate drop alter create grant revoke call exec execute copy load attach detach vacuum reindex lock set pragma rename handler use declare begin commit " +
	"rollback save print kill shutdown backup restore dbcc deny waitfor bulk reconfigure raiserror goto if while")

// batchWords begin a second statement of T-SQL but behind a sign and the words of operandWords, where they are names.
var batchWords = wordSet("revert receive setuser checkpoint throw disable enable close open deallocate writetext updatetext readtext return break continue send get move add")

// operandWords are the words, reserved in every dialect, behind which an operand stands, or a name.
var operandWords = wordSet("select distinct all as by where and or not on having when then else case between in like is set")

// judgedKinds are the statements in which two operands do not stand beside each other, but for an alias: the second
// may begin a statement that the tables do not name.
var judgedKinds = wordSet("select values with insert replace update delete merge explain table")

// operators are the words, besides those of clauses, that are no operand and no alias.
var operators = wordSet("true false asc desc nulls first last rows range groups preceding following unbounded current row escape ilike similar to regexp rlike glob collate at zone both leading trailing placing div xor do nothing " +
	"duplicate")

// datingWords stand before a text that is a date.
var datingWords = wordSet("date time timestamp")

// follows are the words behind which a beginning word belongs to the same statement.
var follows = map[string]map[string]bool{
	"update": wordSet("for on do key then"), "delete": wordSet("on then"), "insert": wordSet("then or )"), "replace": wordSet("or"), "if": wordSet("table view"), "set": wordSet("*"),
}

// readingKinds are the statements that only read.
var readingKinds = wordSet("select show describe desc explain values table")

// beginnings are the words that must follow the first one, so that the tables of the statement are where
// this reader looks for them. A kind that is not here, or behind which another word stands, is not known.
var beginnings = map[string]map[string]bool{
	"select": nil, "values": nil, "with": nil, "show": nil, "describe": nil, "desc": nil, "table": nil, "truncate": nil, "update": nil,
	"begin": nil, "commit": nil, "rollback": nil,
	"insert": wordSet("into"), "replace": wordSet("into"), "delete": wordSet("from"), "merge": wordSet("into"),
	"drop": wordSet("table view"), "alter": wordSet("table view"), "create": wordSet("table view"),
	"explain": wordSet("analyze verbose select insert update delete merge with values table"), // to some it describes a table
}

// tableWords stand before a table.
var tableWords = wordSet("from join into update table only truncate using view")

// describingWords stand before a table if they begin the statement.
var describingWords = wordSet("describe desc")

// modifiers stand between such a word and a table.
var modifiers = wordSet("table if not exists only lateral into view")

// reservedWords are no names of tables or aliases without quotes.
var reservedWords = wordSet("select set values with where on using group order having limit offset fetch union intersect except join inner left right full outer cross natural from into as " +
	"when then returning for window default low_priority high_priority ignore quick delayed top or if exists table update delete insert analyze verbose extended all distinct " +
	"add drop alter rename modify change column cascade restrict apply pivot unpivot tablesample matched and not is in between like null case end qualify start connect")

// pureFunctions are the functions that look at nothing but their arguments. Another may read or write any
// table.
var pureFunctions = wordSet("count sum avg min max coalesce nullif greatest least abs round floor ceil ceiling mod power sqrt sign lower upper length char_length trim ltrim rtrim substr substring replace concat " +
	"concat_ws left right position overlay strpos instr cast convert extract date_trunc date_part now date time timestamp year month day hour minute second datediff dateadd to_char to_date row_number rank " +
	"dense_rank lag lead first_value last_value ntile string_agg group_concat array_agg json_agg jsonb_agg json_extract md5 hex random")

// argumentWords are the functions that have words between their arguments.
var argumentWords = wordSet("extract trim substring overlay position")

// clauseWords are the words behind which a bracket opens no arguments of a function.
var clauseWords = wordSet("select from where and or not in exists on values as join inner left right full cross using union all except intersect having by over partition order group any some distinct when then else " +
	"case between like is returning with set only lateral table into if within filter limit offset key primary unique check references default numeric decimal varchar char character int integer varying float double " +
	"bigint smallint binary varbinary nvarchar nchar recursive materialized")

// Words behind create, behind WITH, and at the end of a list of tables.
var (
	creationWords = wordSet("or replace temporary temp unlogged materialized")
	copyingWords  = wordSet("like inherits partition of clone copy") // a table that is made names another one
	actingWords   = wordSet("select insert update delete merge")
	endingWords   = wordSet("where group order having limit offset fetch union intersect except returning for window set values select")
)

func wordSet(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// parseSQL lists the statements of a text. It is a tokeniser, not a parser: dialects differ, and a
// text that two of them read differently, or of which a form is not in the tables above, is not known.
func parseSQL(s string) SQL {
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

// statementReader reads one statement. It looks at every token once.
type statementReader struct {
	Statement
	tokens []string
	lower  []string // the same in lower case
	known  bool
	writes bool
	seen   map[string]bool // the tables
	levels []level         // the open brackets; the first is the statement
}

// level is the state within one bracket.
type level struct {
	list     bool // a list of tables is open: a comma goes before another table
	expect   bool // a table follows
	aliases  bool // an operand may have an alias: of a list of results
	argument bool // of a function that has FROM and FOR between its arguments
	operands int  // that stand beside each other here, up to the token before
}

// readStatement reads one statement from its tokens.
func readStatement(tokens []string) (Statement, bool) {
	r := &statementReader{tokens: tokens, lower: make([]string, len(tokens)), known: isSQLWord(tokens[0]), seen: map[string]bool{}, levels: []level{{}}}
	for i, t := range tokens {
		r.lower[i] = strings.ToLower(t)
	}
	r.Kind, r.Tables = r.lower[0], []string{}
	r.checkBeginning()
	for i := 0; i < len(tokens); {
		i = r.read(i)
	}
	r.known = r.known && len(r.levels) == 1 && !r.levels[0].expect
	if !isSQLWord(tokens[0]) {
		r.Kind = "unknown"
	}
	r.Reads = readingKinds[r.Kind] && !r.writes
	return r.Statement, r.known
}

// checkBeginning checks that the statement begins with a form that is understood.
func (r *statementReader) checkBeginning() {
	next, understood := beginnings[r.Kind]
	r.known = r.known && understood
	if next == nil {
		return
	}
	at := 1
	for at < len(r.lower) && creationWords[r.lower[at]] && r.Kind == "create" {
		at++
	}
	r.known = r.known && at < len(r.lower) && next[r.lower[at]]
}

func (r *statementReader) top() *level { return &r.levels[len(r.levels)-1] }

// read reads the token at i and returns the index of the next one.
func (r *statementReader) read(i int) int {
	t, word := r.tokens[i], r.lower[i]
	r.checkOperands(i)
	r.writes = r.writes || writingWords[word]
	r.known = r.known && !(r.Kind == "create" && copyingWords[word])
	switch {
	case t == "(":
		r.open(i)
	case t == ")":
		if len(r.levels) == 1 {
			r.known = false
			return i + 1
		}
		r.known = r.known && !r.top().expect
		r.levels = r.levels[:len(r.levels)-1]
		if r.top().list {
			return r.alias(i + 1)
		}
	case t == ",":
		r.known = r.known && !r.top().expect
		r.top().expect = r.top().list
	case r.Kind == "with" && len(r.levels) == 1 && actingWords[word]:
		r.Kind = word
		r.known = r.known && (word != "insert" && word != "merge" || i+1 < len(r.lower) && r.lower[i+1] == "into") && (word != "delete" || i+1 < len(r.lower) && r.lower[i+1] == "from")
		if r.top().aliases = word == "select"; word == "update" {
			*r.top() = level{list: true, expect: true}
		}
	case r.top().expect && !modifiers[word]:
		return r.table(i)
	case tableWords[word] || i == 0 && describingWords[word]:
		r.tableWord(i)
	case reservedWords[word]:
		r.clause(i)
	default:
		r.checkSecond(i)
	}
	return i + 1
}

// checkOperands checks that the token at i is no operand beside another one.
func (r *statementReader) checkOperands(i int) {
	word, top := r.lower[i], r.top()
	most := 1
	if top.aliases {
		most = 2
	}
	r.checkBatch(i)
	switch {
	case word == ".":
		top.operands--
	case word == "as":
		top.operands = most - 1
	case word == "interval" && i+1 < len(r.lower) && (r.lower[i+1] == "''" || number.MatchString(r.lower[i+1])):
		top.operands = -1 // a number and a unit follow
	case word == "null", word == "end":
		top.operands = 1
	case word == "''" && i > 0 && datingWords[r.lower[i-1]]:
	case i == 0, !r.isOperand(i), reservedWords[word], clauseWords[word], tableWords[word], operators[word]:
		top.operands = 0
	default:
		top.operands++
	}
	r.known = r.known && (top.operands <= most || !judgedKinds[r.Kind])
}

// checkBatch checks that the token at i begins no second statement.
func (r *statementReader) checkBatch(i int) {
	if i == 0 || !batchWords[r.lower[i]] || r.Kind == "alter" && r.lower[i] == "add" {
		return
	}
	before := r.lower[i-1]
	if sign := !r.isOperand(i-1) && before != ")"; !sign && !operandWords[before] {
		r.known, r.writes = false, true
	}
}

// isOperand reports whether the token at i is a word, a name, a text or a number.
func (r *statementReader) isOperand(i int) bool {
	t := r.tokens[i]
	return isSQLWord(t) || isQuotedName(t) || t == "''" || t[0] >= '0' && t[0] <= '9'
}

// tableWord reads a word before a table.
func (r *statementReader) tableWord(i int) {
	word := r.lower[i]
	if word == "from" && r.top().argument {
		return
	}
	if word == "using" && i+1 < len(r.tokens) && r.tokens[i+1] == "(" && r.Kind != "delete" && r.Kind != "merge" {
		r.top().expect = false // the columns of a join
		return
	}
	r.checkSecond(i)
	if word == "update" && i > 0 && follows["update"][r.lower[i-1]] {
		return
	}
	*r.top() = level{list: true, expect: true}
}

// lockWords follow a FOR that ends a list of tables. Behind another one more tables may stand: FOR SYSTEM_TIME.
var lockWords = wordSet("update share no key")

// clause reads a word that may end a list of tables.
func (r *statementReader) clause(i int) {
	if r.lower[i] == "for" && !r.top().argument {
		r.known = r.known && i+1 < len(r.lower) && lockWords[r.lower[i+1]]
	}
	if endingWords[r.lower[i]] && !(r.lower[i] == "for" && r.top().argument) {
		*r.top() = level{aliases: r.lower[i] == "select" || r.lower[i] == "returning"}
	}
	r.checkSecond(i)
}

// checkSecond checks that a word begins no second statement.
func (r *statementReader) checkSecond(i int) {
	if i == 0 || !beginningWords[r.lower[i]] || r.lower[i-1] == "explain" || r.lower[i-1] == "analyze" {
		return
	}
	if i+1 < len(r.lower) && r.lower[i+1] == "(" && pureFunctions[r.lower[i]] {
		return // replace(a, b, c)
	}
	before := follows[r.lower[i]]
	understood := before[r.lower[i-1]] || before["*"] && (r.Kind == "update" || r.Kind == "insert" || r.Kind == "merge")
	if !understood {
		r.known, r.writes = false, true
	}
}

// open reads an opening bracket.
func (r *statementReader) open(i int) {
	before, next := "", ""
	if i > 0 {
		before = r.lower[i-1]
	}
	if i+1 < len(r.tokens) {
		next = r.lower[i+1]
	}
	qualified := i > 1 && r.tokens[i-2] == "." // a function of a user's
	inner := level{argument: argumentWords[before] && !qualified}
	r.top().operands = 1 // what the bracket holds
	if r.top().expect {
		inner = level{list: true, expect: next != "select" && next != "with" && next != "values"}
		r.top().expect = false
	} else if isSQLWord(before) && (qualified || !clauseWords[before] && !pureFunctions[before]) && !r.afterTable(i) || isQuotedName(before) && !r.afterTable(i) || before == "." {
		r.known, r.writes = false, true // a function may do anything
	}
	r.levels = append(r.levels, inner)
	r.known = r.known && len(r.levels) < maxLevels
}

// afterTable reports whether the bracket at i holds the columns of the table before it.
func (r *statementReader) afterTable(i int) bool {
	for j := i - 1; j > 0; j-- {
		switch w := r.lower[j]; {
		case w == "." || isSQLWord(w) && !reservedWords[w] || isQuotedName(w):
		case w == "into", w == "table", w == "exists", w == "references":
			return r.Kind == "insert" || r.Kind == "replace" || r.Kind == "create" || r.Kind == "merge"
		default:
			return false
		}
		if i-j > 8 {
			return false
		}
	}
	return r.Kind == "with" // with a (b) as
}

// table reads the name of a table and its alias.
func (r *statementReader) table(i int) int {
	r.top().expect = false
	if !isSQLWord(r.tokens[i]) && !isQuotedName(r.tokens[i]) {
		r.known = false
		return i + 1
	}
	if reservedWords[r.lower[i]] {
		r.known = r.known && (i == 0 || r.lower[i-1] == "(" || r.lower[i] == "set")
		r.clause(i)
		return i + 1
	}
	parts := []string{unquoteName(r.tokens[i])}
	for i++; i+1 < len(r.tokens) && r.tokens[i] == "."; i += 2 {
		parts = append(parts, unquoteName(r.tokens[i+1]))
	}
	if name := strings.ToLower(strings.Join(parts, ".")); !r.seen[name] && len(r.Tables) <= maxTables {
		r.seen[name] = true
		r.Tables = append(r.Tables, name)
	}
	if i < len(r.tokens) && r.tokens[i] == "(" {
		return i
	}
	return r.alias(i)
}

// alias reads the alias of a table, and checks that what follows is understood.
func (r *statementReader) alias(i int) int {
	if i < len(r.tokens) && r.lower[i] == "as" {
		i++
	}
	if i < len(r.tokens) && (isSQLWord(r.tokens[i]) && !reservedWords[r.lower[i]] && !beginningWords[r.lower[i]] && !batchWords[r.lower[i]] || isQuotedName(r.tokens[i])) {
		i++
		r.known = r.known && (i == len(r.tokens) || !isSQLWord(r.tokens[i]) && !isQuotedName(r.tokens[i]) || reservedWords[r.lower[i]] || beginningWords[r.lower[i]])
	}
	if i < len(r.tokens) && !isSQLWord(r.tokens[i]) && r.tokens[i] != "," && r.tokens[i] != ")" && r.tokens[i] != "(" {
		r.known = false
	}
	return i
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

// sqlTokens splits a text into words, quoted names and signs. A text in quotes becomes an empty one. The result
// is not known where dialects differ: backslashes in texts, dollar quotes, # and nested or
// executable comments, line ends that are none to all, quotes that do not end, spaces beyond ASCII, and
// words joined to numbers.
func sqlTokens(s string) (tokens []string, known bool) {
	known = true
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case strings.HasPrefix(s[i:], "--"):
			end := endOf(s, i, "\n")
			known = known && (i+2 == len(s) || strings.IndexByte(" \t\r\n", s[i+2]) >= 0) && endsWithLine(s[i:end])
			i = end
		case strings.HasPrefix(s[i:], "/*"):
			end := endOf(s, i+2, "*/")
			body := s[i+2 : end]
			known = known && strings.HasSuffix(body, "*/") && !strings.HasPrefix(body, "!") && !strings.HasPrefix(body, "M!") && !strings.Contains(body, "/*")
			i = end
		case c == '\'', c == '"', c == '`', c == '[':
			end, ok := quoteEnd(s, i)
			body := s[i:end]
			known = known && ok && !strings.Contains(body, "\\") && !joinsWord(s, i) && (c != '[' || plainName(body))
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
			known = known && plainWord(tokens, s[i:end])
			tokens = append(tokens, s[i:end])
			i = end
		default:
			known = known && strings.IndexByte("#$\\\x00@{}", c) < 0 && c >= ' '
			tokens = append(tokens, s[i:i+1])
			i++
		}
	}
	return tokens, known
}

// Numbers as all dialects read them, and what may stand directly behind the point of one. To some, 1from is
// a number and a word.
var (
	number   = regexp.MustCompile(`^(?i:[0-9]+(e[0-9]*)?|0x[0-9a-f]+)$`)
	exponent = regexp.MustCompile(`^(?i:e[0-9]*)$`)
)

// plainWord reports whether a word or number is one to every reader, behind the tokens before it.
func plainWord(before []string, word string) bool {
	n := len(before)
	switch {
	case word[0] >= '0' && word[0] <= '9':
		return number.MatchString(word)
	case n > 1 && before[n-1] == "." && before[n-2][0] >= '0' && before[n-2][0] <= '9':
		return exponent.MatchString(word)
	}
	return !strings.ContainsFunc(word, func(r rune) bool { // $, and spaces beyond ASCII
		return r == '$' || r > unicode.MaxASCII && !unicode.In(r, unicode.L, unicode.M, unicode.Nd)
	})
}

// endsWithLine reports whether every dialect reads on where this reader does: PostgreSQL ends a comment at
// a carriage return as well, others at all that Unicode takes for the end of a line.
func endsWithLine(comment string) bool {
	return !strings.ContainsAny(strings.TrimSuffix(comment, "\r\n"), "\r\v\f\u0085\u2028\u2029")
}

// joinsWord reports whether a quote at i is joined to what stands before it: q'[...]' and U&"..." are texts
// of another kind, and a[1] is an element of an array.
func joinsWord(s string, i int) bool {
	if i == 0 {
		return false
	}
	c := s[i-1]
	return isSQLWord(s[i-1:i]) || c >= '0' && c <= '9' || strings.IndexByte("&$@'\"`]", c) >= 0 || c == ')' && s[i] == '['
}

// plainName reports whether a name in square brackets is a name to every reader that knows them.
func plainName(body string) bool {
	return strings.HasSuffix(body, "]") && len(body) > 2 && isSQLWord(body[1:2]) && !strings.ContainsFunc(body[1:len(body)-1], func(r rune) bool { return r != '_' && r != ' ' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
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

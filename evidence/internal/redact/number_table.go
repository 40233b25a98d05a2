package redact

import (
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/evidence/internal/redact/checkdigits"
)

// numberPattern is one row of the table of numbers: the shapes it is written in, and what
// identifies it.
type numberPattern struct {
	name        string // for readers; several kinds share a detector
	detector    string
	shapes      string   // "4-4-4-4 16": digits of each group; blanks separate shapes
	seps        string   // the signs between the groups, concatenated; "": any
	sureSeps    string   // with these signs no word is needed
	words       uint32   // one of these must precede the number; 0: none needed
	lead        digitSet // allowed first digits; 0: any
	standsAlone bool     // no group of the same length may be next to it
	check       func(digits []byte) bool
}

var numberPatterns = []numberPattern{
	{name: "payment card", detector: Card, shapes: "16 4-4-4-4 15 4-6-5 14 4-6-4 19 4-4-4-4-3", lead: 1<<7 - 1<<2, check: checkdigits.IsCard},
	{name: "payment card, by name", detector: Card, shapes: "13 18", words: wordCard, check: checkdigits.IsLuhn},

	{name: "US social security number", detector: NationalID, shapes: "3-2-4 9", sureSeps: "--", words: wordSSN, check: checkdigits.USSocialSecurity},
	{name: "UK NHS number", detector: NationalID, shapes: "3-3-4 10", words: wordNHS, check: checkdigits.BritishNHS},
	{name: "Canadian SIN", detector: NationalID, shapes: "3-3-3 9", sureSeps: "--", words: wordSIN, check: checkdigits.CanadianSIN},
	{name: "Brazilian CPF", detector: NationalID, shapes: "3-3-3-2 11", sureSeps: "..-", words: wordCPF, check: checkdigits.BrazilianCPF},
	{name: "Swiss AHV number", detector: NationalID, shapes: "3-4-4-2 13", lead: 1 << 7, check: checkdigits.SwissAHV},
	{name: "French NIR", detector: NationalID, shapes: "1-2-2-2-3-3-2 15 13-2", lead: 1<<1 | 1<<2, check: checkdigits.FrenchNIR},
	{name: "German tax id", detector: NationalID, shapes: "2-3-3-3 11", words: wordTax, check: checkdigits.GermanTaxID},
	{name: "Dutch BSN", detector: NationalID, shapes: "9 4-2-3", words: wordBSN, check: checkdigits.DutchBSN},
	{name: "Belgian national number", detector: NationalID, shapes: "2-2-2-3-2 11", sureSeps: "..-.", words: wordNational, check: checkdigits.BelgianNational},
	{name: "Polish PESEL", detector: NationalID, shapes: "11", words: wordPESEL, check: checkdigits.PolishPESEL},
	{name: "Swedish personal number", detector: NationalID, shapes: "6-4 8-4", sureSeps: "-", words: wordNational, check: checkdigits.SwedishPersonal},
	{name: "Norwegian national number", detector: NationalID, shapes: "6-5 11", sureSeps: " ", words: wordNational, check: checkdigits.NorwegianNational},
	{name: "Danish CPR number", detector: NationalID, shapes: "6-4 10", words: wordCPR, check: checkdigits.DanishCPR},
	{name: "Turkish identity number", detector: NationalID, shapes: "11", words: wordTCKN, check: checkdigits.TurkishIdentity},
	{name: "Indian Aadhaar", detector: NationalID, shapes: "4-4-4 12", sureSeps: "  ", words: wordAadhaar, standsAlone: true, lead: 1<<10 - 1<<2, check: checkdigits.Aadhaar},
	{name: "Chinese resident id", detector: NationalID, shapes: "18", check: checkdigits.ChineseResident},
	{name: "Korean resident number", detector: NationalID, shapes: "6-7", seps: "-", check: checkdigits.KoreanResident},
	{name: "South African id", detector: NationalID, shapes: "13 6-4-3", words: wordNational, check: checkdigits.SouthAfricanID},

	{name: "North American telephone", detector: Phone, shapes: "3-3-4 1-3-3-4", sureSeps: "--", words: wordPhone, check: isNANP},
	{name: "North American telephone, country code", detector: Phone, shapes: "1-3-3-4", sureSeps: "---", words: wordPhone, check: isNANP},
	{name: "North American telephone, points", detector: Phone, shapes: "3-3-4", seps: "..", check: isNANP},
	{name: "North American telephone, brackets", detector: Phone, shapes: "3-3-4", seps: ") -", check: isNANP},
	{name: "French telephone", detector: Phone, shapes: "2-2-2-2-2", lead: 1 << 0, check: startsWith("01", "02", "03", "04", "05", "06", "07", "09")},
	{name: "British mobile", detector: Phone, shapes: "5-6 5-3-3", lead: 1 << 0, check: startsWith("071", "072", "073", "074", "075", "077", "078", "079")},
	{name: "British telephone", detector: Phone, shapes: "3-4-4", lead: 1 << 0, check: startsWith("020", "023", "024", "028", "029")},
}

// digitSet is a set of digits, as bits.
type digitSet uint16

// shapeNode is a node of the tree of shapes. It has a child for each number of digits of the next
// group, and the patterns with a shape that ends here.
type shapeNode struct {
	next [maxGroup + 1]uint8 // 0: none
	lead digitSet            // allowed first digits of any of rows
	rows []*numberPattern
}

var shapeTree = func() []shapeNode {
	tree := make([]shapeNode, 1, 64)
	for i := range numberPatterns {
		if numberPatterns[i].lead == 0 {
			numberPatterns[i].lead = 1<<10 - 1
		}
		for shape := range strings.FieldsSeq(numberPatterns[i].shapes) {
			at := 0
			for digits := range strings.SplitSeq(shape, "-") {
				n, err := strconv.Atoi(digits)
				if err != nil || n < 1 || n > maxGroup || len(tree) > 255 {
					panic("redact: shape " + shape)
				}
				if tree[at].next[n] == 0 {
					tree = append(tree, shapeNode{})
					tree[at].next[n] = uint8(len(tree) - 1)
				}
				at = int(tree[at].next[n])
			}
			tree[at].rows = append(tree[at].rows, &numberPatterns[i])
			tree[at].lead |= numberPatterns[i].lead
		}
	}
	return tree
}()

// Meanings of the words before a number.
const (
	wordPhone uint32 = 1 << iota
	wordCard
	wordSSN
	wordNHS
	wordSIN
	wordCPF
	wordTax
	wordBSN
	wordNational
	wordPESEL
	wordCPR
	wordTCKN
	wordAadhaar
)

// contextWords are the words that are looked for before a number, in lower case.
var contextWords = map[string]uint32{
	"phone": wordPhone, "telephone": wordPhone, "tel": wordPhone, "mobile": wordPhone, "cell": wordPhone, "cellphone": wordPhone, "fax": wordPhone,
	"call": wordPhone, "sms": wordPhone, "whatsapp": wordPhone, "dial": wordPhone, "telefon": wordPhone, "handy": wordPhone, "mobil": wordPhone,
	"telefono": wordPhone, "telefone": wordPhone, "portable": wordPhone, "msisdn": wordPhone, "ring": wordPhone,
	"card": wordCard, "visa": wordCard, "mastercard": wordCard, "pan": wordCard, "credit": wordCard, "debit": wordCard, "kreditkarte": wordCard,
	"ssn": wordSSN, "security": wordSSN, "social": wordSSN,
	"nhs": wordNHS, "sin": wordSIN, "insurance": wordSIN, "nas": wordSIN, "cpf": wordCPF,
	"tax": wordTax, "steuer": wordTax, "steuerid": wordTax, "idnr": wordTax, "tin": wordTax, "steueridentifikationsnummer": wordTax, "identifikationsnummer": wordTax,
	"bsn": wordBSN, "burgerservicenummer": wordBSN, "sofinummer": wordBSN,
	"national": wordNational, "rijksregister": wordNational, "rijksregisternummer": wordNational, "identity": wordNational, "personnummer": wordNational,
	"fodselsnummer": wordNational, "citizen": wordNational, "rsa": wordNational, "insz": wordNational, "niss": wordNational,
	"pesel": wordPESEL, "cpr": wordCPR, "tckn": wordTCKN, "kimlik": wordTCKN, "aadhaar": wordAadhaar, "aadhar": wordAadhaar, "uidai": wordAadhaar,
}

const (
	maxWords   = 4  // number of words before a number that are read
	maxWord    = 28 // letters of the longest word
	maxBetween = 6  // greatest number of signs between words
)

// precedingWords returns the meanings of the words before the run.
func (r *digitRun) precedingWords() uint32 {
	if r.wordsKnown {
		return r.words
	}
	r.wordsKnown = true
	r.budget.charge(8)
	at := int(r.groups[0].at)
	var buf [maxWord]byte
	for i := range maxWords {
		joined := i == 0 && at > 1 && r.s[at-1] == '-' && byteClass[r.s[at-2]]&letter != 0
		for limit := at - maxBetween; at > 0 && at > limit && byteClass[r.s[at-1]]&letter == 0; {
			at--
		}
		n := maxWord
		for at > 0 && n > 0 && byteClass[r.s[at-1]]&letter != 0 {
			at, n = at-1, n-1
			buf[n] = lowerASCII(r.s[at])
		}
		if n == maxWord {
			break
		}
		r.budget.charge(25)
		if joined && string(buf[n:]) == "call" { // call-00000017 is the id of a tool call
			continue
		}
		r.words |= contextWords[string(buf[n:])]
		if afterEscape(r.s, at+1) {
			r.words |= contextWords[string(buf[n+1:])]
		}
	}
	return r.words
}

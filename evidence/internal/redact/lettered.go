package redact

import "github.com/countersign-dev/countersign/evidence/internal/redact/checkdigits"

// findLetterNumber looks for numbers with letters: group j is their first digits, and an
// upper-case letter touches it or a short group follows.
func (r *digitRun) findLetterNumber(j int) (from, to int, detector string) {
	g := r.groups[j]
	ahead := 0 // upper-case letters directly before the group
	for ahead < 7 && int(g.at) > ahead && byteClass[r.s[int(g.at)-ahead-1]]&upper != 0 {
		ahead++
	}
	start := int(g.at) - ahead
	if insideWord(r.s, start) {
		return 0, 0, ""
	}
	r.budget.charge(20)
	if ahead == 2 && g.n >= 2 {
		r.budget.charge(50)
		if to = ibanEnd(r.s, start); to > 0 {
			return start, to, IBAN
		}
	}
	for _, row := range letterNumbers {
		if row.ahead != ahead || row.digits != int(g.n) {
			continue
		}
		if end := start + row.length(r.s, start); end > start && end <= len(r.s) && (end == len(r.s) || byteClass[r.s[end]]&alnum == 0 && r.s[end] != '_') {
			return start, end, NationalID
		}
	}
	return 0, 0, ""
}

// letterNumbers are national ids by the number of letters and digits that they begin with. length
// returns the length of the id at start, or 0.
var letterNumbers = []struct {
	name          string
	ahead, digits int
	length        func(s string, start int) int
}{
	{"Spanish DNI", 0, 8, func(s string, i int) int {
		return matchForm(s, i, "99999999A", func(v string) bool { return esLetter(v[:8]) == v[8] })
	}},
	{"Spanish NIE", 1, 7, func(s string, i int) int {
		return matchForm(s, i, "A9999999A", func(v string) bool {
			return v[0] >= 'X' && v[0] <= 'Z' && esLetter(string('0'+v[0]-'X')+v[1:8]) == v[8]
		})
	}},
	{"Singaporean NRIC", 1, 7, func(s string, i int) int { return matchForm(s, i, "A9999999A", sgNRIC) }},
	{"British NINO", 2, 6, func(s string, i int) int { return matchForm(s, i, "AA999999A", ukNINO) }},
	{"British NINO, spaced", 2, 2, func(s string, i int) int { return matchForm(s, i, "AA99 99 99A", ukNINO) }},
	{"Finnish HETU", 0, 6, func(s string, i int) int { return matchForm(s, i, "999999*999*", fiHETU) }},
	{"Italian codice fiscale", 6, 2, func(s string, i int) int { return matchForm(s, i, "AAAAAA99A99A999A", itCF) }},
	{"Chinese resident id", 0, 17, func(s string, i int) int {
		return matchForm(s, i, "99999999999999999A", func(v string) bool {
			return v[17] == 'X' && checkdigits.ChineseDate([]byte(v)) && checkdigits.ChineseCheck([]byte(v)) == 'X'
		})
	}},
}

// matchForm compares s at i with a form (9 is a digit, A an upper-case letter, * any byte) and
// then calls check. It returns the length of the form, or 0.
func matchForm(s string, i int, form string, check func(string) bool) int {
	if len(s)-i < len(form) {
		return 0
	}
	for k := range len(form) {
		c := s[i+k]
		switch form[k] {
		case '9':
			if !isDigit(c) {
				return 0
			}
		case 'A':
			if byteClass[c]&upper == 0 {
				return 0
			}
		case '*':
		default:
			if c != form[k] {
				return 0
			}
		}
	}
	if !check(s[i : i+len(form)]) {
		return 0
	}
	return len(form)
}

func esLetter(digits string) byte {
	return "TRWAGMYFPDXBNJZSQVHLCKE"[checkdigits.Value([]byte(digits))%23]
}

func sgNRIC(v string) bool {
	sum := checkdigits.WeightedSum([]byte(v[1:]), 2, 7, 6, 5, 4, 3, 2)
	switch v[0] {
	case 'T', 'G':
		sum += 4
	}
	switch v[0] {
	case 'S', 'T':
		return "JZIHGFEDCBA"[sum%11] == v[8]
	case 'F', 'G':
		return "XWUTRQPNMLK"[sum%11] == v[8]
	}
	return false
}

// ukNINO checks that no letter is one that is never used; there is no check digit.
func ukNINO(v string) bool {
	for i, c := range []byte(v[:2]) {
		switch c {
		case 'D', 'F', 'I', 'Q', 'U', 'V':
			return false
		case 'O':
			if i == 1 {
				return false
			}
		}
	}
	switch v[:2] {
	case "BG", "GB", "NK", "KN", "TN", "NT", "ZZ":
		return false
	}
	last := v[len(v)-1]
	return last >= 'A' && last <= 'D'
}

func fiHETU(v string) bool {
	switch v[6] {
	case '-', '+', 'A', 'B', 'C', 'D', 'E', 'F', 'U', 'V', 'W', 'X', 'Y':
	default:
		return false
	}
	d := []byte(v[:6] + v[7:10])
	for _, c := range d {
		if !isDigit(c) {
			return false
		}
	}
	return checkdigits.IsDayMonth(checkdigits.TwoDigits(d, 0), checkdigits.TwoDigits(d, 2)) && "0123456789ABCDEFHJKLMNPRSTUVWXY"[checkdigits.Value(d)%31] == v[10]
}

// itCF checks the check letter of a codice fiscale.
func itCF(v string) bool {
	odd := [36]int{1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23}
	sum := 0
	for i := range 15 {
		n := int(v[i] - '0')
		if byteClass[v[i]]&upper != 0 {
			n = int(v[i]-'A') + 10
		}
		switch {
		case i%2 == 0:
			sum += odd[n]
		case n >= 10:
			sum += n - 10
		default:
			sum += n
		}
	}
	return byte('A'+sum%26) == v[15]
}

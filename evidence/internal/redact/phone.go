package redact

// internationalPhone returns the end of a telephone number with a plus sign before group j: 8 to
// 15 digits, the first not 0. It returns 0 if there is none.
func (r *digitRun) internationalPhone(j int) (to int) {
	plus := int(r.groups[j].at) - 1
	if insideWord(r.s, plus) || r.s[plus+1] == '0' {
		return 0
	}
	total := 0
	for i := j; i < len(r.groups) && total+int(r.groups[i].n) <= 15; i++ {
		if total += int(r.groups[i].n); total >= 8 {
			to = r.groups[i].end()
		}
	}
	if to > 0 && to < len(r.s) && (byteClass[r.s[to]]&alnum != 0 || r.s[to] == ':') {
		return 0
	}
	return to
}

// nationalPhone finds 7 to 14 digits after a word that means telephone.
func (r *digitRun) nationalPhone(j int) (from, to int, detector string) {
	if j > 0 || r.total < minDigits {
		return 0, 0, ""
	}
	total, n := 0, 0
	for n < len(r.groups) && total+int(r.groups[n].n) <= 14 {
		total += int(r.groups[n].n)
		n++
	}
	if total < minDigits || r.precedingWords()&wordPhone == 0 {
		return 0, 0, ""
	}
	end := r.groups[n-1].end()
	if end < len(r.s) && (byteClass[r.s[end]]&alnum != 0 || r.s[end] == ':') {
		return 0, 0, ""
	}
	return r.numberStart(0), end, Phone
}

// isNANP checks the digits of a North American number: neither area nor exchange begins with 0
// or 1.
func isNANP(d []byte) bool {
	if len(d) == 11 {
		if d[0] != '1' {
			return false
		}
		d = d[1:]
	}
	return d[0] >= '2' && d[3] >= '2' && (d[1] != '1' || d[2] != '1')
}

func startsWith(digits ...string) func([]byte) bool {
	return func(d []byte) bool {
		for _, p := range digits {
			if string(d[:len(p)]) == p {
				return true
			}
		}
		return false
	}
}

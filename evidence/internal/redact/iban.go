package redact

import "strings"

// ibanForms are the forms of bank accounts by country (ISO 13616), after the two check digits: n
// for digits, a for letters, c for either, each with their number.
const ibanForms = `AD n8c12 AE n19 AL n8c16 AT n16 AZ a4c20 BA n16 BE n12 BG a4n6c8 BH a4c14 BR n23a1c1 BY c4n4c16 CH n5c12 CR n18 CY n8c16
CZ n20 DE n18 DK n14 DO c4n20 EE n16 EG n25 ES n20 FI n14 FO n14 FR n10c11n2 GB a4n14 GE a2n16 GI a4c15 GL n14 GR n7c16 GT c24 HR n17
HU n24 IE a4n14 IL n19 IQ a4n15 IS n22 IT a1n10c12 JO a4n4c18 KW a4c22 KZ n3c13 LB n4c20 LC a4c24 LI n5c12 LT n16 LU n3c13 LV a4c13
LY n21 MC n10c11n2 MD c20 ME n18 MK n3c10n2 MR n23 MT a4n5c18 MU a4n19a3 NL a4n10 NO n11 PK a4c16 PL n24 PS a4c21 PT n21 QA a4c21 RO a4c16
RS n18 SA n2c18 SC a4n20a3 SE n20 SI n15 SK n20 SM a1n10c12 TL n19 TN n20 TR n5c17 UA n6c19 VA n18 VG a4n16 XK n16`

// ibanForm maps a country to the character classes after the check digits.
var ibanForm = func() (t [26 * 26][]uint16) {
	parts := strings.Fields(ibanForms)
	for i := 0; i < len(parts); i += 2 {
		var form []uint16
		for s := parts[i+1]; s != ""; {
			class := map[byte]uint16{'n': digit, 'a': upper, 'c': upper | digit}[s[0]]
			n, k := 0, 1
			for ; k < len(s) && isDigit(s[k]); k++ {
				n = 10*n + int(s[k]-'0')
			}
			for range n {
				form = append(form, class)
			}
			s = s[k:]
		}
		t[countryIndex(parts[i][0], parts[i][1])] = form
	}
	return t
}()

func countryIndex(a, b byte) int { return int(a-'A')*26 + int(b-'A') }

// ibanEnd returns the end of the IBAN that begins at i with two capital letters and two digits,
// or 0. Single blanks and dashes may be inside.
func ibanEnd(s string, i int) (end int) {
	form := ibanForm[countryIndex(s[i], s[i+1])]
	if form == nil || len(s)-i < 4+len(form) || s[i+2] == '0' && s[i+3] < '2' {
		return 0
	}
	rem, p := uint64(0), i+4
	for n := 0; n < len(form); p++ {
		if p >= len(s) {
			return 0
		}
		c := s[p]
		if byteClass[c]&form[n] == 0 {
			sign, size := joinerAt(s, p)
			if sign != ' ' && sign != '-' || byteClass[s[p-1]]&alnum == 0 {
				return 0
			}
			p += size - 1
			continue
		}
		rem = mod97(rem, c)
		n++
	}
	if p < len(s) && (byteClass[s[p]]&alnum != 0 || s[p] == '_') {
		return 0
	}
	for _, c := range [...]byte{s[i], s[i+1], s[i+2], s[i+3]} { // the country and the check digits come last
		rem = mod97(rem, c)
	}
	if rem%97 != 1 {
		return 0
	}
	return p
}

// mod97 appends a character to a number known modulo 97; letters count from 10 (ISO 7064,
// mod 97-10).
func mod97(rem uint64, c byte) uint64 {
	if isDigit(c) {
		rem = 10*rem + uint64(c-'0')
	} else {
		rem = 100*rem + uint64(c-'A') + 10
	}
	if rem > 1<<56 {
		rem %= 97
	}
	return rem
}

// Package checkdigits tells the numbers of cards and identity documents from other numbers: by their
// check digits, dates and ranges. Every check gets ASCII digits without signs between them, exactly as
// many as its comment says; the caller sees to that. A check without check digits of its own says so.
package checkdigits

func digitAt(d []byte, i int) int { return int(d[i] - '0') }

// TwoDigits is the number that the digits at i and i+1 form.
func TwoDigits(d []byte, i int) int { return 10*digitAt(d, i) + digitAt(d, i+1) }

// WeightedSum is the sum of the first digits of d times the weights.
func WeightedSum(d []byte, weights ...int) (sum int) {
	for i, w := range weights {
		sum += w * digitAt(d, i)
	}
	return sum
}

// Value is the number that d forms, of 19 digits at most.
func Value(d []byte) (n uint64) {
	for i := range d {
		n = 10*n + uint64(digitAt(d, i))
	}
	return n
}

// IsDayMonth reports whether day and month are in range.
func IsDayMonth(day, month int) bool { return day >= 1 && day <= 31 && month >= 1 && month <= 12 }

// IsLuhn checks the last digit by Luhn, in a number of any length with at least three different digits.
func IsLuhn(d []byte) bool { return luhnSum(d)%10 == 0 && hasVariedDigits(d) }

func luhnSum(d []byte) (sum int) {
	double := len(d)%2 == 0
	for _, c := range d {
		if double {
			sum += luhnDouble[c-'0']
		} else {
			sum += int(c - '0')
		}
		double = !double
	}
	return sum
}

// luhnDouble is the digit sum of twice a digit.
var luhnDouble = [10]int{0, 2, 4, 6, 8, 1, 3, 5, 7, 9}

// hasVariedDigits reports whether there are at least three different digits: 0000… and 1111…
// are fillers.
func hasVariedDigits(d []byte) bool {
	seen, n := [10]bool{}, 0
	for i := range d {
		if v := digitAt(d, i); !seen[v] {
			seen[v] = true
			n++
		}
	}
	return n >= 3
}

// IsCard checks Luhn, and the length (14 to 19 digits) against the issuer's first digits.
func IsCard(d []byte) bool {
	p2, p4 := TwoDigits(d, 0), 100*TwoDigits(d, 0)+TwoDigits(d, 2)
	ok := false
	switch {
	case d[0] == '4':
		ok = len(d) == 16 || len(d) == 19
	case p2 >= 51 && p2 <= 55, p4 >= 2221 && p4 <= 2720:
		ok = len(d) == 16
	case p2 == 34 || p2 == 37:
		ok = len(d) == 15
	case p2 == 36, p2 == 38, p4 >= 3000 && p4 <= 3059:
		ok = len(d) == 14 || len(d) == 16
	case p4 == 6011, p2 == 65, p4 >= 6440 && p4 <= 6499, p2 == 62, p4 >= 3528 && p4 <= 3589:
		ok = len(d) == 16 || len(d) == 19
	}
	return ok && luhnSum(d)%10 == 0
}

// USSocialSecurity checks the ranges of 9 digits: such a number has no check digit.
func USSocialSecurity(d []byte) bool {
	area := 10*TwoDigits(d, 0) + digitAt(d, 2)
	return area > 0 && area != 666 && area < 900 && TwoDigits(d, 3) > 0 && Value(d[5:]) > 0 && string(d) != "078051120" && string(d) != "123456789" && hasVariedDigits(d)
}

// BritishNHS checks 10 digits.
func BritishNHS(d []byte) bool {
	c := 11 - WeightedSum(d, 10, 9, 8, 7, 6, 5, 4, 3, 2)%11
	return c%11 == digitAt(d, 9) && c != 10 && hasVariedDigits(d)
}

// CanadianSIN checks 9 digits.
func CanadianSIN(d []byte) bool { return d[0] != '0' && d[0] != '8' && IsLuhn(d) }

// BrazilianCPF checks 11 digits, of which the last two are check digits.
func BrazilianCPF(d []byte) bool {
	c := WeightedSum(d, 10, 9, 8, 7, 6, 5, 4, 3, 2) * 10 % 11 % 10
	e := WeightedSum(d, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2) * 10 % 11 % 10
	return c == digitAt(d, 9) && e == digitAt(d, 10) && hasVariedDigits(d)
}

// SwissAHV checks 13 digits.
func SwissAHV(d []byte) bool {
	return string(d[:3]) == "756" && (10-WeightedSum(d, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3)%10)%10 == digitAt(d, 12)
}

// FrenchNIR checks 15 digits: sex, month and the last two.
func FrenchNIR(d []byte) bool {
	month := TwoDigits(d, 3)
	return (d[0] == '1' || d[0] == '2') && (month >= 1 && month <= 12 || month >= 20 && month <= 42) && 97-Value(d[:13])%97 == Value(d[13:])
}

// GermanTaxID checks 11 digits (ISO 7064, mod 11,10).
func GermanTaxID(d []byte) bool {
	p := 10
	for i := range 10 {
		if p = (p + digitAt(d, i)) % 10; p == 0 {
			p = 10
		}
		p = p * 2 % 11
	}
	return d[0] != '0' && (11-p)%10 == digitAt(d, 10)
}

// DutchBSN checks 9 digits.
func DutchBSN(d []byte) bool {
	return (WeightedSum(d, 9, 8, 7, 6, 5, 4, 3, 2)-digitAt(d, 8))%11 == 0 && hasVariedDigits(d)
}

// BelgianNational checks 11 digits: the date of birth and the last two, of a birth before or after 2000.
func BelgianNational(d []byte) bool {
	n, c := Value(d[:9]), Value(d[9:])
	return IsDayMonth(TwoDigits(d, 4), TwoDigits(d, 2)) && (97-n%97 == c || 97-(2_000_000_000+n)%97 == c)
}

// PolishPESEL checks 11 digits: the date of birth with the century in its month, and the last one.
func PolishPESEL(d []byte) bool {
	return IsDayMonth(TwoDigits(d, 4), TwoDigits(d, 2)%20) && (10-WeightedSum(d, 1, 3, 7, 9, 1, 3, 7, 9, 1, 3)%10)%10 == digitAt(d, 10)
}

// SwedishPersonal checks 10 digits, or 12 with the century: the date of birth, or a coordination number's day, and Luhn.
func SwedishPersonal(d []byte) bool {
	if len(d) == 12 {
		if c := TwoDigits(d, 0); c < 18 || c > 20 {
			return false
		}
		d = d[2:]
	}
	day := TwoDigits(d, 4)
	return (IsDayMonth(day, TwoDigits(d, 2)) || IsDayMonth(day-60, TwoDigits(d, 2))) && IsLuhn(d)
}

// NorwegianNational checks 11 digits: the date of birth, or a D number's day, and the last two.
func NorwegianNational(d []byte) bool {
	c := (11 - WeightedSum(d, 3, 7, 6, 1, 8, 9, 4, 5, 2)%11) % 11
	e := (11 - WeightedSum(d, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)%11) % 11
	return (IsDayMonth(TwoDigits(d, 0), TwoDigits(d, 2)) || IsDayMonth(TwoDigits(d, 0)-40, TwoDigits(d, 2))) && c == digitAt(d, 9) && e == digitAt(d, 10)
}

// DanishCPR checks the date of birth in 10 digits: newer numbers have no check digit.
func DanishCPR(d []byte) bool { return IsDayMonth(TwoDigits(d, 0), TwoDigits(d, 2)) }

// TurkishIdentity checks 11 digits, of which the last two are check digits.
func TurkishIdentity(d []byte) bool {
	odd, even := digitAt(d, 0)+digitAt(d, 2)+digitAt(d, 4)+digitAt(d, 6)+digitAt(d, 8), digitAt(d, 1)+digitAt(d, 3)+digitAt(d, 5)+digitAt(d, 7)
	return d[0] != '0' && (7*odd-even+100)%10 == digitAt(d, 9) && (odd+even+digitAt(d, 9))%10 == digitAt(d, 10)
}

// The tables of Verhoeff's algorithm.
var (
	verhoeffD = [10][10]byte{
		{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, 4, 0, 6, 7, 8, 9, 5}, {2, 3, 4, 0, 1, 7, 8, 9, 5, 6}, {3, 4, 0, 1, 2, 8, 9, 5, 6, 7},
		{4, 0, 1, 2, 3, 9, 5, 6, 7, 8}, {5, 9, 8, 7, 6, 0, 4, 3, 2, 1}, {6, 5, 9, 8, 7, 1, 0, 4, 3, 2}, {7, 6, 5, 9, 8, 2, 1, 0, 4, 3},
		{8, 7, 6, 5, 9, 3, 2, 1, 0, 4}, {9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
	}
	verhoeffP = [8][10]byte{
		{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 5, 7, 6, 2, 8, 3, 0, 9, 4}, {5, 8, 0, 3, 7, 9, 6, 1, 4, 2}, {8, 9, 1, 6, 0, 4, 3, 5, 2, 7},
		{9, 4, 5, 3, 1, 2, 6, 8, 7, 0}, {4, 2, 8, 6, 5, 7, 3, 9, 0, 1}, {2, 7, 9, 3, 8, 0, 6, 4, 1, 5}, {7, 0, 4, 6, 9, 1, 3, 2, 5, 8},
	}
)

// verhoeff combines both tables: by place, sum and digit.
var verhoeff = func() (t [8][10][10]byte) {
	for i := range t {
		for c := range t[i] {
			for d := range t[i][c] {
				t[i][c][d] = verhoeffD[c][verhoeffP[i][d]]
			}
		}
	}
	return t
}()

// Aadhaar checks 12 digits by Verhoeff.
func Aadhaar(d []byte) bool {
	c := byte(0)
	for i := range d {
		c = verhoeff[i%8][c][d[len(d)-1-i]-'0']
	}
	return d[0] >= '2' && c == 0 && hasVariedDigits(d)
}

// ChineseCheck is the check character over the first 17 digits.
func ChineseCheck(d []byte) byte {
	return "10X98765432"[WeightedSum(d, 7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)%11]
}

// ChineseDate checks region and date of birth in the first 14 of 18 characters.
func ChineseDate(d []byte) bool {
	c := TwoDigits(d, 6)
	return d[0] != '0' && (c == 19 || c == 20) && IsDayMonth(TwoDigits(d, 12), TwoDigits(d, 10))
}

// ChineseResident checks 18 digits. A number that ends with X is the caller's: see ChineseCheck.
func ChineseResident(d []byte) bool { return ChineseDate(d) && ChineseCheck(d) == d[17] }

// KoreanResident checks 13 digits: the date of birth, the century's digit and the last one.
func KoreanResident(d []byte) bool {
	c := (11 - WeightedSum(d, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)%11) % 10
	return IsDayMonth(TwoDigits(d, 4), TwoDigits(d, 2)) && d[6] >= '1' && d[6] <= '8' && c == digitAt(d, 12)
}

// SouthAfricanID checks 13 digits: the date of birth, the digit of citizenship and Luhn.
func SouthAfricanID(d []byte) bool {
	return IsDayMonth(TwoDigits(d, 4), TwoDigits(d, 2)) && d[10] <= '2' && IsLuhn(d)
}

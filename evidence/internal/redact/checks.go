package redact

// Check digits of the numbers in the table. Every check gets digits only, as
// many as one of its shapes has.

func digitAt(d []byte, i int) int { return int(d[i] - '0') }

func twoDigits(d []byte, i int) int { return 10*digitAt(d, i) + digitAt(d, i+1) }

// weightedSum is the sum of the first digits times the weights.
func weightedSum(d []byte, weights ...int) (sum int) {
	for i, w := range weights {
		sum += w * digitAt(d, i)
	}
	return sum
}

func valueOf(d []byte) (n uint64) {
	for i := range d {
		n = 10*n + uint64(digitAt(d, i))
	}
	return n
}

// isDayMonth reports whether day and month can be.
func isDayMonth(day, month int) bool { return day >= 1 && day <= 31 && month >= 1 && month <= 12 }

func isLuhnValid(d []byte) bool { return luhnSum(d)%10 == 0 && hasVariedDigits(d) }

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

// luhnDouble is the sum of the digits of twice a digit.
var luhnDouble = [10]int{0, 2, 4, 6, 8, 1, 3, 5, 7, 9}

// hasVariedDigits reports whether there are at least three different digits: 0000… and
// 1111… are fillers.
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

// isCardNumber checks Luhn, and length against the issuer's first digits.
func isCardNumber(d []byte) bool {
	p2, p4 := twoDigits(d, 0), 100*twoDigits(d, 0)+twoDigits(d, 2)
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

func usSSN(d []byte) bool {
	area := 10*twoDigits(d, 0) + digitAt(d, 2)
	return area > 0 && area != 666 && area < 900 && twoDigits(d, 3) > 0 && valueOf(d[5:]) > 0 && string(d) != "078051120" && string(d) != "123456789" && hasVariedDigits(d)
}

func ukNHS(d []byte) bool {
	c := 11 - weightedSum(d, 10, 9, 8, 7, 6, 5, 4, 3, 2)%11
	return c%11 == digitAt(d, 9) && c != 10 && hasVariedDigits(d)
}

func caSIN(d []byte) bool { return d[0] != '0' && d[0] != '8' && isLuhnValid(d) }

func brCPF(d []byte) bool {
	c := weightedSum(d, 10, 9, 8, 7, 6, 5, 4, 3, 2) * 10 % 11 % 10
	e := weightedSum(d, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2) * 10 % 11 % 10
	return c == digitAt(d, 9) && e == digitAt(d, 10) && hasVariedDigits(d)
}

func chAHV(d []byte) bool {
	return string(d[:3]) == "756" && (10-weightedSum(d, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3)%10)%10 == digitAt(d, 12)
}

func frNIR(d []byte) bool {
	month := twoDigits(d, 3)
	return (d[0] == '1' || d[0] == '2') && (month >= 1 && month <= 12 || month >= 20 && month <= 42) && 97-valueOf(d[:13])%97 == valueOf(d[13:])
}

func deTaxID(d []byte) bool {
	p := 10
	for i := range 10 {
		if p = (p + digitAt(d, i)) % 10; p == 0 {
			p = 10
		}
		p = p * 2 % 11
	}
	return d[0] != '0' && (11-p)%10 == digitAt(d, 10)
}

func nlBSN(d []byte) bool {
	return (weightedSum(d, 9, 8, 7, 6, 5, 4, 3, 2)-digitAt(d, 8))%11 == 0 && hasVariedDigits(d)
}

func beNN(d []byte) bool {
	n, c := valueOf(d[:9]), valueOf(d[9:])
	return isDayMonth(twoDigits(d, 4), twoDigits(d, 2)) && (97-n%97 == c || 97-(2_000_000_000+n)%97 == c)
}

func plPESEL(d []byte) bool {
	return isDayMonth(twoDigits(d, 4), twoDigits(d, 2)%20) && (10-weightedSum(d, 1, 3, 7, 9, 1, 3, 7, 9, 1, 3)%10)%10 == digitAt(d, 10)
}

func sePNR(d []byte) bool {
	if len(d) == 12 {
		if c := twoDigits(d, 0); c < 18 || c > 20 {
			return false
		}
		d = d[2:]
	}
	day := twoDigits(d, 4)
	return (isDayMonth(day, twoDigits(d, 2)) || isDayMonth(day-60, twoDigits(d, 2))) && isLuhnValid(d)
}

func noFNR(d []byte) bool {
	c := (11 - weightedSum(d, 3, 7, 6, 1, 8, 9, 4, 5, 2)%11) % 11
	e := (11 - weightedSum(d, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)%11) % 11
	return (isDayMonth(twoDigits(d, 0), twoDigits(d, 2)) || isDayMonth(twoDigits(d, 0)-40, twoDigits(d, 2))) && c == digitAt(d, 9) && e == digitAt(d, 10)
}

func dkCPR(d []byte) bool { return isDayMonth(twoDigits(d, 0), twoDigits(d, 2)) }

func trTCKN(d []byte) bool {
	odd, even := digitAt(d, 0)+digitAt(d, 2)+digitAt(d, 4)+digitAt(d, 6)+digitAt(d, 8), digitAt(d, 1)+digitAt(d, 3)+digitAt(d, 5)+digitAt(d, 7)
	return d[0] != '0' && (7*odd-even+100)%10 == digitAt(d, 9) && (odd+even+digitAt(d, 9))%10 == digitAt(d, 10)
}

// Verhoeff's tables.
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

// verhoeff is both tables in one: by place, sum and digit.
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

func inAadhaar(d []byte) bool {
	c := byte(0)
	for i := range d {
		c = verhoeff[i%8][c][d[len(d)-1-i]-'0']
	}
	return d[0] >= '2' && c == 0 && hasVariedDigits(d)
}

// cnCheck is the check character over the first 17 digits.
func cnCheck(d []byte) byte {
	return "10X98765432"[weightedSum(d, 7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)%11]
}

func cnDate(d []byte) bool {
	c := twoDigits(d, 6)
	return d[0] != '0' && (c == 19 || c == 20) && isDayMonth(twoDigits(d, 12), twoDigits(d, 10))
}

func cnRID(d []byte) bool { return cnDate(d) && cnCheck(d) == d[17] }

func krRRN(d []byte) bool {
	c := (11 - weightedSum(d, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)%11) % 10
	return isDayMonth(twoDigits(d, 4), twoDigits(d, 2)) && d[6] >= '1' && d[6] <= '8' && c == digitAt(d, 12)
}

func zaID(d []byte) bool {
	return isDayMonth(twoDigits(d, 4), twoDigits(d, 2)) && d[10] <= '2' && isLuhnValid(d)
}

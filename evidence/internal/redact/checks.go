package redact

// Check digits of the numbers in the table. Every check gets digits only, as
// many as one of its shapes has.

func at(d []byte, i int) int { return int(d[i] - '0') }

func two(d []byte, i int) int { return 10*at(d, i) + at(d, i+1) }

// weighted is the sum of the first digits times the weights.
func weighted(d []byte, weights ...int) (sum int) {
	for i, w := range weights {
		sum += w * at(d, i)
	}
	return sum
}

func valueOf(d []byte) (n uint64) {
	for i := range d {
		n = 10*n + uint64(at(d, i))
	}
	return n
}

// date reports whether day and month can be.
func date(day, month int) bool { return day >= 1 && day <= 31 && month >= 1 && month <= 12 }

func luhn(d []byte) bool { return luhnSum(d)%10 == 0 && varied(d) }

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

// varied reports whether there are at least three different digits: 0000… and
// 1111… are fillers.
func varied(d []byte) bool {
	seen, n := [10]bool{}, 0
	for i := range d {
		if v := at(d, i); !seen[v] {
			seen[v] = true
			n++
		}
	}
	return n >= 3
}

// card checks Luhn, and length against the issuer's first digits.
func card(d []byte) bool {
	p2, p4 := two(d, 0), 100*two(d, 0)+two(d, 2)
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
	area := 10*two(d, 0) + at(d, 2)
	return area > 0 && area != 666 && area < 900 && two(d, 3) > 0 && valueOf(d[5:]) > 0 && string(d) != "078051120" && string(d) != "123456789" && varied(d)
}

func ukNHS(d []byte) bool {
	c := 11 - weighted(d, 10, 9, 8, 7, 6, 5, 4, 3, 2)%11
	return c%11 == at(d, 9) && c != 10 && varied(d)
}

func caSIN(d []byte) bool { return d[0] != '0' && d[0] != '8' && luhn(d) }

func brCPF(d []byte) bool {
	c := weighted(d, 10, 9, 8, 7, 6, 5, 4, 3, 2) * 10 % 11 % 10
	e := weighted(d, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2) * 10 % 11 % 10
	return c == at(d, 9) && e == at(d, 10) && varied(d)
}

func chAHV(d []byte) bool {
	return string(d[:3]) == "756" && (10-weighted(d, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3)%10)%10 == at(d, 12)
}

func frNIR(d []byte) bool {
	month := two(d, 3)
	return (d[0] == '1' || d[0] == '2') && (month >= 1 && month <= 12 || month >= 20 && month <= 42) && 97-valueOf(d[:13])%97 == valueOf(d[13:])
}

func deTaxID(d []byte) bool {
	p := 10
	for i := range 10 {
		if p = (p + at(d, i)) % 10; p == 0 {
			p = 10
		}
		p = p * 2 % 11
	}
	return d[0] != '0' && (11-p)%10 == at(d, 10)
}

func nlBSN(d []byte) bool {
	return (weighted(d, 9, 8, 7, 6, 5, 4, 3, 2)-at(d, 8))%11 == 0 && varied(d)
}

func beNN(d []byte) bool {
	n, c := valueOf(d[:9]), valueOf(d[9:])
	return date(two(d, 4), two(d, 2)) && (97-n%97 == c || 97-(2_000_000_000+n)%97 == c)
}

func plPESEL(d []byte) bool {
	return date(two(d, 4), two(d, 2)%20) && (10-weighted(d, 1, 3, 7, 9, 1, 3, 7, 9, 1, 3)%10)%10 == at(d, 10)
}

func sePNR(d []byte) bool {
	if len(d) == 12 {
		if c := two(d, 0); c < 18 || c > 20 {
			return false
		}
		d = d[2:]
	}
	day := two(d, 4)
	return (date(day, two(d, 2)) || date(day-60, two(d, 2))) && luhn(d)
}

func noFNR(d []byte) bool {
	c := (11 - weighted(d, 3, 7, 6, 1, 8, 9, 4, 5, 2)%11) % 11
	e := (11 - weighted(d, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)%11) % 11
	return (date(two(d, 0), two(d, 2)) || date(two(d, 0)-40, two(d, 2))) && c == at(d, 9) && e == at(d, 10)
}

func dkCPR(d []byte) bool { return date(two(d, 0), two(d, 2)) }

func trTCKN(d []byte) bool {
	odd, even := at(d, 0)+at(d, 2)+at(d, 4)+at(d, 6)+at(d, 8), at(d, 1)+at(d, 3)+at(d, 5)+at(d, 7)
	return d[0] != '0' && (7*odd-even+100)%10 == at(d, 9) && (odd+even+at(d, 9))%10 == at(d, 10)
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
	return d[0] >= '2' && c == 0 && varied(d)
}

// cnCheck is the check character over the first 17 digits.
func cnCheck(d []byte) byte {
	return "10X98765432"[weighted(d, 7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)%11]
}

func cnDate(d []byte) bool {
	c := two(d, 6)
	return d[0] != '0' && (c == 19 || c == 20) && date(two(d, 12), two(d, 10))
}

func cnRID(d []byte) bool { return cnDate(d) && cnCheck(d) == d[17] }

func krRRN(d []byte) bool {
	c := (11 - weighted(d, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)%11) % 10
	return date(two(d, 4), two(d, 2)) && d[6] >= '1' && d[6] <= '8' && c == at(d, 12)
}

func zaID(d []byte) bool { return date(two(d, 4), two(d, 2)) && d[10] <= '2' && luhn(d) }

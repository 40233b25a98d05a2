package strictjson

import (
	"strconv"
	"strings"
)

// maxSafe is 2^53: up to it, with either sign, readers with 64-bit integers and with float64
// read the same integer.
const maxSafe = 1 << 53

// checkNumber refuses JSON numbers that two readers may take for different values: integers
// beyond 2^53, and literals with a decimal value that is not the shortest decimal of the nearest
// float64 (0.1 is accepted, 0.10000000000000000001 is not; 1e400 is out of range).
func checkNumber(lit string) (Code, string) {
	digits, exp := splitDecimal(lit)
	f, err := strconv.ParseFloat(lit, 64)
	if err != nil {
		return ImpreciseNumber, "the number is beyond what a float64 can hold"
	}
	if exp >= 0 && digits != "0" { // an integer
		if f > maxSafe || f < -maxSafe || (abs(f) == maxSafe && !isMaxSafe(digits, exp)) {
			return UnsafeInteger, "the integer is beyond 2^53; send it as a string"
		}
		return "", ""
	}
	short, shortExp := splitDecimal(strconv.FormatFloat(f, 'e', -1, 64))
	if digits != short || exp != shortExp {
		return ImpreciseNumber, "the number has more digits than a float64 can hold; send it as a string"
	}
	return "", ""
}

func abs(f float64) float64 {
	if f < 0 {
		return -f
	}
	return f
}

func isMaxSafe(digits string, exp int) bool {
	return digits+strings.Repeat("0", exp) == strconv.Itoa(maxSafe)
}

// splitDecimal writes the size of a JSON number, whatever its sign, as digits * 10^exp, the digits without leading or trailing
// zeros ("0" for zero, exp then 0). Exponents too large to matter are clamped; ParseFloat has
// refused those or rounded them to zero.
func splitDecimal(lit string) (digits string, exp int) {
	lit = strings.TrimPrefix(lit, "-")
	if i := strings.IndexAny(lit, "eE"); i >= 0 {
		e, err := strconv.Atoi(strings.TrimPrefix(lit[i+1:], "+"))
		if err != nil || e > 1<<20 {
			e = 1 << 20
			if strings.HasPrefix(lit[i+1:], "-") {
				e = -e
			}
		}
		exp, lit = e, lit[:i]
	}
	if i := strings.IndexByte(lit, '.'); i >= 0 {
		exp -= len(lit) - i - 1
		lit = lit[:i] + lit[i+1:]
	}
	trimmed := strings.TrimRight(lit, "0")
	exp += len(lit) - len(trimmed)
	digits = strings.TrimLeft(trimmed, "0")
	if digits == "" {
		return "0", 0
	}
	return digits, exp
}

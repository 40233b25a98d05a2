package redact

import (
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/evidence/internal/redact/checkdigits"
)

// personalPlaces are where personal data stands.
var personalPlaces = []string{"%s", "please use %s for this", "customer %s, done", `{"note":"%s"}`, "- %s\n", "2026-11-20T06:42:00Z INFO user %s logged in", "(%s)", "see %s.", "a;%s;b", "<td>%s</td>"}

func person(name string, value func(d dice) string, in ...string) kind {
	if len(in) == 0 {
		in = personalPlaces
	}
	return kind{name: name, class: "personal", value: value, places: in}
}

// until draws digits until the check holds.
func until(d dice, n int, ok func([]byte) bool) string {
	for {
		if s := d.from(tens, n); ok([]byte(s)) {
			return s
		}
	}
}

// grouped writes digits in groups: "3-2-4" with the signs of seps between them.
func grouped(digits, shape, seps string) string {
	var b strings.Builder
	at := 0
	for i, n := range strings.Split(shape, "-") {
		k := int(n[0] - '0')
		if i > 0 {
			b.WriteByte(seps[(i-1)%len(seps)])
		}
		b.WriteString(digits[at : at+k])
		at += k
	}
	return b.String()
}

func dated(d dice) string {
	return fmt.Sprintf("%02d%02d%02d", d.IntN(100), 1+d.IntN(12), 1+d.IntN(28))
}

func cardOf(d dice) string {
	switch d.IntN(4) {
	case 0:
		return until(d, 15, func(v []byte) bool { return v[0] == '3' && v[1] == '7' && checkdigits.IsCard(v) })
	case 1:
		return until(d, 16, func(v []byte) bool { return v[0] == '5' && checkdigits.IsCard(v) })
	default:
		return until(d, 16, func(v []byte) bool { return v[0] == '4' && checkdigits.IsCard(v) })
	}
}

func ibanOf(d dice) string {
	c := d.one("DE", "FR", "GB", "NL", "ES", "CH", "AT", "PL", "IT", "MT")
	form := ibanForm[countryIndex(c[0], c[1])]
	bban := make([]byte, len(form))
	for i, class := range form {
		switch class {
		case digit:
			bban[i] = d.from(tens, 1)[0]
		case upper:
			bban[i] = d.from(uppers, 1)[0]
		default:
			bban[i] = d.from(uppers+tens, 1)[0]
		}
	}
	rem := uint64(0)
	for _, x := range append(bban, c[0], c[1], '0', '0') {
		rem = mod97(rem, x)
	}
	return fmt.Sprintf("%s%02d%s", c, 98-rem%97, bban)
}

func fours(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if i > 0 && i%4 == 0 {
			b.WriteByte(' ')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

var personalKinds = []kind{
	person("email", func(d dice) string {
		return d.word() + d.one(".", "_", "+", "") + d.word() + d.one("", d.from(tens, 2)) + "@" + d.word() + d.one(".com", ".example", ".co.uk", ".de", "-mail.org")
	}),
	person("email_named", func(d dice) string { return d.word() + "@" + d.word() + ".example" }, "From: Dana <%s>", "mailto:%s", "to=%s&cc=", "E-Mail: %s"),
	person("card", cardOf), person("card_grouped", func(d dice) string {
		c := until(d, 16, func(v []byte) bool { return v[0] == '4' && checkdigits.IsCard(v) })
		return grouped(c, "4-4-4-4", d.one(" ", "-"))
	}),
	person("iban", ibanOf), person("iban_grouped", func(d dice) string { return fours(ibanOf(d)) }),
	person("phone_international", func(d dice) string {
		return "+" + d.one("49", "44", "33", "1", "61", "351") + d.one(" ", "-", "") + d.one("30", "20", "415", "7") + d.one(" ", "-") + d.from("123456789", 3) + d.from(tens, 4)
	}),
	person("phone_us", func(d dice) string {
		a, e, l := d.from("23456789", 1)+d.from("02345678", 2), d.from("23456789", 1)+d.from(tens, 2), d.from(tens, 4)
		return d.one("("+a+") "+e+"-"+l, a+"-"+e+"-"+l, a+"."+e+"."+l, "1-"+a+"-"+e+"-"+l)
	}),
	person("phone_worded", func(d dice) string { return "0" + d.from("123456789", 3) + d.one(" ", "/", "-") + d.from(tens, 7) }, "Tel: %s", "phone %s", "call me: %s", "Telefon: %s", "Fax %s", "mobile: %s"),
	person("us_ssn", func(d dice) string { return grouped(until(d, 9, checkdigits.USSocialSecurity), "3-2-4", "-") }),
	person("uk_nhs", func(d dice) string { return grouped(until(d, 10, checkdigits.BritishNHS), "3-3-4", " ") }, "NHS number %s", "NHS no. %s", "nhs: %s"),
	person("uk_nino", func(d dice) string { return d.from("ABCEHJLM", 2) + d.from(tens, 6) + d.from("ABCD", 1) }),
	person("ca_sin", func(d dice) string { return grouped(until(d, 9, checkdigits.CanadianSIN), "3-3-3", d.one("-", " ")) }, "SIN %s", "social insurance number: %s"),
	person("br_cpf", func(d dice) string { return grouped(until(d, 11, checkdigits.BrazilianCPF), "3-3-3-2", "..-") }),
	person("ch_ahv", func(d dice) string {
		return grouped("756"+until(d, 10, func(v []byte) bool { return checkdigits.SwissAHV(append([]byte("756"), v...)) }), "3-4-4-2", ".")
	}),
	person("fr_nir", func(d dice) string {
		base := d.one("1", "2") + d.from(tens, 2) + fmt.Sprintf("%02d", 1+d.IntN(12)) + d.from(tens, 8)
		return base + fmt.Sprintf("%02d", 97-checkdigits.Value([]byte(base))%97)
	}),
	person("de_tax_id", func(d dice) string { return until(d, 11, checkdigits.GermanTaxID) }, "Steuer-ID %s", "Steuer-IdNr. %s", "tax id: %s"),
	person("nl_bsn", func(d dice) string { return until(d, 9, checkdigits.DutchBSN) }, "BSN %s", "burgerservicenummer: %s"),
	person("be_nn", func(d dice) string {
		base := dated(d) + d.from(tens, 3)
		return grouped(base+fmt.Sprintf("%02d", 97-checkdigits.Value([]byte(base))%97), "2-2-2-3-2", "..-.")
	}),
	person("pl_pesel", func(d dice) string { return until(d, 11, checkdigits.PolishPESEL) }, "PESEL %s", "pesel: %s"),
	person("se_pnr", func(d dice) string {
		base := dated(d)
		return base + "-" + until(d, 4, func(v []byte) bool { return checkdigits.SwedishPersonal(append([]byte(base), v...)) })
	}),
	person("fi_hetu", func(d dice) string {
		base, no := fmt.Sprintf("%02d%02d%02d", 1+d.IntN(28), 1+d.IntN(12), d.IntN(100)), d.from(tens, 3)
		return base + d.one("-", "A") + no + string("0123456789ABCDEFHJKLMNPRSTUVWXY"[checkdigits.Value([]byte(base+no))%31])
	}),
	person("es_dni", func(d dice) string { v := d.from(tens, 8); return v + string(esLetter(v)) }),
	person("it_cf", func(d dice) string {
		for {
			v := d.from(uppers, 6) + d.from(tens, 2) + d.from("ABCDEHLMPRST", 1) + d.from(tens, 2) + d.from(uppers, 1) + d.from(tens, 3) + d.from(uppers, 1)
			if itCF(v) {
				return v
			}
		}
	}),
	person("cn_rid", func(d dice) string {
		base := "110101" + fmt.Sprintf("19%02d%02d%02d", d.IntN(100), 1+d.IntN(12), 1+d.IntN(28)) + d.from(tens, 3)
		return base + string(checkdigits.ChineseCheck([]byte(base)))
	}),
	person("in_aadhaar", func(d dice) string { return grouped(until(d, 12, checkdigits.Aadhaar), "4-4-4", " ") }),
	person("tr_tckn", func(d dice) string { return until(d, 11, checkdigits.TurkishIdentity) }, "TCKN %s", "T.C. Kimlik No: %s"),
	person("sg_nric", func(d dice) string {
		for {
			if v := d.one("S", "T") + d.from(tens, 7) + d.from("ABCDEFGHIZJ", 1); sgNRIC(v) {
				return v
			}
		}
	}),
	// What no detector can know by looking.
	{name: "hard_name", class: "personal", value: func(d dice) string { return "Dana " + strings.ToUpper(d.word()[:1]) + d.word()[1:] }, places: []string{"written by %s", "%s called"}, count: 20},
	{name: "hard_phone_alone", class: "personal", value: func(d dice) string { return d.from("123456789", 1) + d.from(tens, 6) }, places: []string{"reach her at %s", "%s"}, count: 20},
	{name: "hard_street_in_prose", class: "personal", value: func(d dice) string { return d.from("123456789", 2) + " " + d.word() + " street" }, places: []string{"ship it to %s please"}, count: 20},
}

package checkdigits

import "testing"

// Each check takes a number that holds, and none that differs from it in one digit where the check
// digits find that.
func TestChecks(t *testing.T) {
	for name, c := range map[string]struct {
		check func([]byte) bool
		valid string
		other string // not valid; "": every other last digit
	}{
		"card, Visa":                     {IsCard, "4111111111111111", ""},
		"card, Mastercard":               {IsCard, "5500005555555559", ""},
		"card, Mastercard, newer":        {IsCard, "2223003122003222", ""},
		"card, American Express":         {IsCard, "378282246310005", ""},
		"card, Diners":                   {IsCard, "30569309025904", ""},
		"card, Discover":                 {IsCard, "6011111111111117", ""},
		"card, of an unknown issuer":     {IsCard, "6304000000000000", "x"},
		"a filler":                       {IsLuhn, "0000000000000", "x"},
		"US social security":             {USSocialSecurity, "219099987", "219009987"},
		"US social security, no area":    {USSocialSecurity, "219099987", "666099987"},
		"US social security, no serial":  {USSocialSecurity, "219099987", "219090000"},
		"US social security, of a purse": {USSocialSecurity, "219099987", "078051120"},
		"British NHS":                    {BritishNHS, "9434765919", ""},
		"Canadian SIN":                   {CanadianSIN, "130692544", ""},
		"Canadian SIN, of none":          {CanadianSIN, "130692544", "046454286"},
		"Brazilian CPF":                  {BrazilianCPF, "52998224725", ""},
		"Brazilian CPF, first check":     {BrazilianCPF, "52998224725", "52998224735"},
		"Swiss AHV":                      {SwissAHV, "7569217076985", ""},
		"Swiss AHV, another country":     {SwissAHV, "7569217076985", "7579217076985"},
		"French NIR":                     {FrenchNIR, "255081416802538", ""},
		"French NIR, month":              {FrenchNIR, "255081416802538", "255131416802538"},
		"German tax id":                  {GermanTaxID, "86095742719", ""},
		"Dutch BSN":                      {DutchBSN, "111222333", ""},
		"Belgian, before 2000":           {BelgianNational, "85073003328", ""},
		"Belgian, after 2000":            {BelgianNational, "00012511148", ""},
		"Belgian, month":                 {BelgianNational, "85073003328", "85133003328"},
		"Polish PESEL":                   {PolishPESEL, "44051401359", ""},
		"Swedish":                        {SwedishPersonal, "8112189876", ""},
		"Swedish, with the century":      {SwedishPersonal, "198112189876", ""},
		"Swedish, another century":       {SwedishPersonal, "198112189876", "178112189876"},
		"Norwegian":                      {NorwegianNational, "01129955151", ""},
		"Danish":                         {DanishCPR, "0101701234", "3201701234"},
		"Turkish":                        {TurkishIdentity, "10000000146", ""},
		"Aadhaar":                        {Aadhaar, "234123412346", ""},
		"Chinese":                        {ChineseResident, "110105194912310046", ""},
		"Chinese, date":                  {ChineseResident, "110105194912310046", "110105194913310046"},
		"Korean":                         {KoreanResident, "8201011234564", ""},
		"Korean, century":                {KoreanResident, "8201011234564", "8201019234564"},
		"South African":                  {SouthAfricanID, "8001015009087", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.check([]byte(c.valid)); got != (c.other != "x") {
				t.Errorf("%s: %v", c.valid, got)
			}
			others := []string{c.other}
			for d := byte('0'); d <= '9' && c.other == ""; d++ {
				others = append(others, c.valid[:len(c.valid)-1]+string(d))
			}
			for _, other := range others {
				if len(other) > 1 && other != c.valid && c.check([]byte(other)) {
					t.Errorf("%s passes", other)
				}
			}
		})
	}
}

func TestChineseCheck(t *testing.T) {
	if got := ChineseCheck([]byte("11010519491231002")); got != 'X' {
		t.Errorf("%c", got)
	}
}

func TestIsDayMonth(t *testing.T) {
	for _, c := range []struct {
		day, month int
		want       bool
	}{{1, 1, true}, {31, 12, true}, {0, 1, false}, {32, 1, false}, {1, 0, false}, {1, 13, false}} {
		if IsDayMonth(c.day, c.month) != c.want {
			t.Errorf("%+v", c)
		}
	}
}

package redact

import "strings"

// fieldRule is one row of the table of names that mark a value as personal data. It applies to
// keys of objects, not to words in a text, and only to values that pass check.
type fieldRule struct {
	text     string // normalised as in nameRules
	detector string
	exact    bool // false: a longer name that ends with text matches too
	check    func(value string) bool
}

var personalFields = []fieldRule{
	{text: "email", detector: Email, check: hasAt}, {text: "emailaddress", detector: Email, check: hasAt}, {text: "mail", detector: Email, check: hasAt},

	{text: "phone", detector: Phone, check: sevenDigits}, {text: "phonenumber", detector: Phone, check: sevenDigits}, {text: "mobile", detector: Phone, check: sevenDigits},
	{text: "mobilenumber", detector: Phone, check: sevenDigits}, {text: "telephone", detector: Phone, check: sevenDigits}, {text: "cellphone", detector: Phone, check: sevenDigits},
	{text: "fax", detector: Phone, check: sevenDigits}, {text: "faxnumber", detector: Phone, check: sevenDigits}, {text: "msisdn", detector: Phone, check: sevenDigits},
	{text: "tel", detector: Phone, exact: true, check: sevenDigits},

	{text: "cardnumber", detector: Card, check: sevenDigits}, {text: "creditcard", detector: Card, check: sevenDigits}, {text: "creditcardnumber", detector: Card, check: sevenDigits},
	{text: "pan", detector: Card, exact: true, check: sevenDigits}, {text: "cvv", detector: Card, check: anyDigit}, {text: "cvc", detector: Card, check: anyDigit},
	{text: "cvv2", detector: Card, check: anyDigit}, {text: "securitycode", detector: Card, check: anyDigit},
	{text: "pin", detector: CredentialField, exact: true, check: isPIN}, {text: "cardpin", detector: CredentialField, check: isPIN},
	{text: "iban", detector: IBAN, check: sevenDigits}, {text: "bankaccount", detector: IBAN, check: fourDigits}, {text: "bankaccountnumber", detector: IBAN, check: fourDigits},

	{text: "ssn", detector: NationalID, check: fourDigits}, {text: "socialsecuritynumber", detector: NationalID, check: fourDigits}, {text: "nationalid", detector: NationalID, check: fourDigits},
	{text: "nationalidnumber", detector: NationalID, check: fourDigits}, {text: "nationalinsurancenumber", detector: NationalID, check: fourDigits},
	{text: "nino", detector: NationalID, exact: true, check: fourDigits}, {text: "nhsnumber", detector: NationalID, check: fourDigits},
	{text: "passport", detector: NationalID, check: fourDigits}, {text: "passportnumber", detector: NationalID, check: fourDigits}, {text: "passportno", detector: NationalID, check: fourDigits},
	{text: "driverslicense", detector: NationalID, check: fourDigits}, {text: "driverlicense", detector: NationalID, check: fourDigits}, {text: "drivinglicence", detector: NationalID, check: fourDigits},
	{text: "taxid", detector: NationalID, check: fourDigits}, {text: "steuerid", detector: NationalID, check: fourDigits}, {text: "cpf", detector: NationalID, check: fourDigits},
	{text: "pesel", detector: NationalID, check: fourDigits}, {text: "aadhaar", detector: NationalID, check: fourDigits}, {text: "bsn", detector: NationalID, exact: true, check: fourDigits},
	{text: "personnummer", detector: NationalID, check: fourDigits}, {text: "codicefiscale", detector: NationalID, check: fourDigits}, {text: "curp", detector: NationalID, exact: true, check: fourDigits},

	{text: "ipaddress"}, {text: "macaddress"}, {text: "walletaddress"}, {text: "contractaddress"}, {text: "listenaddress"}, {text: "bindaddress"},
	{text: "serveraddress"}, {text: "memoryaddress"}, {text: "baseaddress"}, {text: "webaddress"}, {text: "hostaddress"}, {text: "remoteaddress"}, {text: "localaddress"},
	{text: "address", detector: Address, check: isStreetLike}, {text: "streetaddress", detector: Address, check: isStreetLike}, {text: "homeaddress", detector: Address, check: hasLetters},
	{text: "postaladdress", detector: Address, check: hasLetters}, {text: "mailingaddress", detector: Address, check: hasLetters}, {text: "shippingaddress", detector: Address, check: hasLetters},
	{text: "billingaddress", detector: Address, check: hasLetters}, {text: "deliveryaddress", detector: Address, check: hasLetters}, {text: "residentialaddress", detector: Address, check: hasLetters},
	{text: "addressline1", detector: Address, check: hasLetters}, {text: "addressline2", detector: Address, check: hasLetters}, {text: "addressline", detector: Address, check: hasLetters},
	{text: "address1", detector: Address, check: isStreetLike}, {text: "address2", detector: Address, check: isStreetLike}, {text: "street", detector: Address, exact: true, check: hasLetters},
	{text: "streetname", detector: Address, check: hasLetters}, {text: "postalcode", detector: Address, check: anyDigit}, {text: "postcode", detector: Address, check: anyDigit},
	{text: "zipcode", detector: Address, check: anyDigit}, {text: "zip", detector: Address, exact: true, check: fiveDigits},

	{text: "dateofbirth", detector: BirthDate, check: anyDigit}, {text: "birthdate", detector: BirthDate, check: anyDigit}, {text: "birthday", detector: BirthDate, check: anyDigit},
	{text: "dob", detector: BirthDate, exact: true, check: anyDigit},

	{text: "maidenname", detector: PersonalField, check: hasLetters}, {text: "medicalrecordnumber", detector: PersonalField, check: anyDigit},
	{text: "mrn", detector: PersonalField, exact: true, check: fourDigits}, {text: "biometric", detector: PersonalField, check: hasLetters}, {text: "fingerprintdata", detector: PersonalField, check: hasLetters},
}

// isPIN reports whether v is a PIN by its form: other pins are names, or numbers of two digits.
func isPIN(v string) bool { return len(v) >= 4 && len(v) <= 8 && runEnd(v, 0, digit) == len(v) }

// personalField returns the rule for a key, or one without a detector.
func personalField(key string) fieldRule {
	if _, i := findRules(key); i > 0 {
		return personalFields[i-1]
	}
	return fieldRule{}
}

func countDigits(v string, enough int) bool {
	n := 0
	for i := 0; i < len(v) && i < 4*maxIdent; i++ {
		if isDigit(v[i]) {
			if n++; n == enough {
				return true
			}
		}
	}
	return false
}

func hasAt(v string) bool       { return strings.IndexByte(v, '@') > 0 }
func anyDigit(v string) bool    { return countDigits(v, 1) }
func fourDigits(v string) bool  { return countDigits(v, 4) }
func fiveDigits(v string) bool  { return countDigits(v, 5) && len(v) <= 10 }
func sevenDigits(v string) bool { return countDigits(v, 7) }

// hasLetters reports whether v has three letters of any script.
func hasLetters(v string) bool {
	n := 0
	for i := range len(v) {
		if byteClass[v[i]]&letter != 0 || v[i] >= 0x80 {
			if n++; n == 3 {
				return true
			}
		}
	}
	return false
}

// isStreetLike reports whether v has what a street has and a host, a pointer or a mailbox lacks:
// a blank, a digit and letters.
func isStreetLike(v string) bool {
	return strings.IndexByte(v, ' ') > 0 && anyDigit(v) && hasLetters(v) && strings.IndexByte(v, '@') < 0
}

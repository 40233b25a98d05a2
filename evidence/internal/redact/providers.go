package redact

import "strings"

// providerRules are the shapes that issuers publish for their keys, except those that matchedRules
// has. Literals are the issuers' own. Lengths are their minimum, so that longer future keys
// match too.
var providerRules = []rule{
	{detector: "aws_access_key_id", literals: []string{"AKIA", "ASIA", "ABIA", "ACCA"}, class: upper | digit, min: 16},
	{detector: "aws_access_key_id", literals: []string{"ABSK"}, class: base64c, min: 100},
	{detector: "github_token", literals: []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_"}, glued: true, class: alnum, min: 30},
	{detector: "github_token", literals: []string{"github_pat_"}, class: word, min: 30},
	{detector: "gitlab_token", literals: []string{"glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-", "glagent-", "glft-", "glimt-", "glffct-"}, class: word | dot, min: 16, check: looksLikeKey},
	{detector: "slack_token", literals: []string{"xoxb-", "xoxa-", "xoxp-", "xoxr-", "xoxs-", "xoxe-", "xoxe.", "xapp-", "xwfp-"}, class: word | dot, min: 10, check: hasDigit},
	{detector: "slack_webhook", literals: []string{"hooks.slack.com/services/", "hooks.slack.com/workflows/"}, glued: true, class: alnum | base64Rest, min: 20},
	{detector: "stripe_key", literals: []string{"sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"}, class: alnum | base64Rest, min: 16},
	{detector: "api_key", literals: []string{"sk-"}, class: word, min: 20, check: longSegment},
	{detector: "google_api_key", literals: []string{"AIza"}, class: word, min: 35},
	{detector: "google_oauth", literals: []string{"ya29."}, class: word | dot, min: 20},
	{detector: "google_oauth", literals: []string{"GOCSPX-"}, class: word, min: 20},
	{detector: "npm_token", literals: []string{"npm_"}, class: alnum, min: 30},
	{detector: "huggingface_token", literals: []string{"hf_", "api_org_"}, class: alnum, min: 30},
	{detector: "digitalocean_token", literals: []string{"dop_v1_", "doo_v1_", "dor_v1_"}, class: alnum, min: 40},
	{detector: "pypi_token", literals: []string{"pypi-"}, class: word, min: 40},
	{detector: "docker_token", literals: []string{"dckr_pat_", "dckr_oat_"}, class: word, min: 20},
	{detector: "vault_token", literals: []string{"hvs.", "hvb.", "hvr."}, class: word, min: 20},
	{detector: "sendgrid_key", literals: []string{"SG."}, class: word | dot, min: 40},

	{detector: "ai_provider_key", literals: []string{"pplx-", "xai-", "lsv2_pt_", "lsv2_sk_", "nvapi-", "csk-", "tgp_v1_"}, class: word, min: 24, check: hasDigit},
	{detector: "ai_provider_key", literals: []string{"gsk_", "r8_", "fw_"}, class: alnum, min: 24, check: hasDigit},
	{detector: "atlassian_token", literals: []string{"ATATT3", "ATCTT3", "ATBB"}, class: word | base64Rest, min: 24, check: hasDigit},
	{detector: "azure_secret", literals: []string{"AccountKey=", "SharedAccessKey="}, glued: true, class: base64c, min: 40},
	{detector: "azure_secret", literals: []string{"8Q~", "7Q~"}, glued: true, match: matchAzureClient},
	{detector: "braintree_token", literals: []string{"access_token$production$", "access_token$sandbox$"}, class: alnum | dollar, min: 30},
	{detector: "cloudflare_key", literals: []string{"v1.0-"}, class: alnum | dash, min: 100},
	{detector: "databricks_token", literals: []string{"dapi"}, class: digit | lower | dash, min: 32, check: isHexTail},
	{detector: "discord_webhook", literals: []string{"discord.com/api/webhooks/", "discordapp.com/api/webhooks/"}, glued: true, class: word | base64Rest, min: 40},
	{detector: "doppler_token", literals: []string{"dp.pt.", "dp.st.", "dp.ct.", "dp.sa."}, class: word | dot, min: 30},
	{detector: "dropbox_token", literals: []string{"sl.B", "sl.u."}, class: word, min: 60},
	{detector: "dynatrace_token", literals: []string{"dt0c01.", "dt0s01.", "dt0s16."}, class: word | dot, min: 40},
	{detector: "easypost_key", literals: []string{"EZAK", "EZTK"}, class: alnum, min: 54},
	{detector: "facebook_token", literals: []string{"EAAC", "EAAB", "EAAG"}, class: alnum, min: 80},
	{detector: "figma_token", literals: []string{"figd_", "figo_"}, class: word, min: 36},
	{detector: "flutterwave_key", literals: []string{"FLWSECK-", "FLWSECK_TEST-", "FLWPUBK_TEST-"}, class: word, min: 12},
	{detector: "flyio_token", literals: []string{"fo1_", "FlyV1 fm"}, class: word | base64Rest, min: 36},
	{detector: "grafana_token", literals: []string{"glsa_", "glc_"}, class: word | base64Rest, min: 30},
	{detector: "heroku_key", literals: []string{"HRKU-"}, class: word, min: 30},
	{detector: "linear_key", literals: []string{"lin_api_", "lin_oauth_"}, class: alnum, min: 32},
	{detector: "mailchimp_key", literals: []string{"-us1", "-us2", "-us3", "-us4", "-us5", "-us6", "-us7", "-us8", "-us9"}, glued: true, match: matchMailchimp},
	{detector: "mailgun_key", literals: []string{"key-"}, class: alnum, min: 32, check: isHexTail},
	{detector: "microsoft_webhook", literals: []string{".webhook.office.com/webhookb2/"}, glued: true, class: word | base64Rest | at64, min: 60},
	{detector: "newrelic_key", literals: []string{"NRAK-", "NRJS-", "NRAA-", "NRII-"}, class: word, min: 24},
	{detector: "notion_token", literals: []string{"secret_", "ntn_"}, class: alnum, min: 40, check: hasDigit},
	{detector: "onepassword_token", literals: []string{"ops_eyJ"}, class: word | base64Rest, min: 100},
	{detector: "plaid_token", literals: []string{"access-sandbox-", "access-production-", "access-development-"}, class: word, min: 36},
	{detector: "planetscale_token", literals: []string{"pscale_tkn_", "pscale_pw_", "pscale_oauth_"}, class: word | dot, min: 30},
	{detector: "postman_key", literals: []string{"PMAK-"}, class: word, min: 50},
	{detector: "prefect_token", literals: []string{"pnu_", "pnb_"}, class: alnum, min: 36},
	{detector: "pulumi_token", literals: []string{"pul-"}, class: lower | digit, min: 40},
	{detector: "razorpay_key", literals: []string{"rzp_live_", "rzp_test_"}, class: alnum, min: 14},
	{detector: "rubygems_token", literals: []string{"rubygems_"}, class: alnum, min: 40, check: isHexTail},
	{detector: "sendinblue_key", literals: []string{"xkeysib-", "xsmtpsib-"}, class: word, min: 60},
	{detector: "sentry_token", literals: []string{"sntrys_", "sntryu_"}, class: word | base64Rest, min: 60},
	{detector: "shopify_token", literals: []string{"shpat_", "shpss_", "shpca_", "shppa_"}, class: alnum, min: 32},
	{detector: "square_token", literals: []string{"sq0atp-", "sq0csp-", "sq0idp-"}, class: word, min: 22},
	{detector: "supabase_key", literals: []string{"sbp_", "sb_secret_"}, class: word, min: 30},
	{detector: "telegram_token", literals: []string{":AA"}, glued: true, match: matchTelegram},
	{detector: "terraform_token", literals: []string{".atlasv1."}, glued: true, match: matchTerraform},
	{detector: "twilio_key", literals: []string{"SK"}, class: alnum, min: 32, check: isHexTail},
	{detector: "alibaba_key", literals: []string{"LTAI"}, class: alnum, min: 16, check: hasDigit},
	{detector: "artifactory_key", literals: []string{"AKCp"}, class: alnum, min: 60},
	{detector: "adafruit_key", literals: []string{"aio_"}, class: alnum, min: 28},
	{detector: "clickhouse_key", literals: []string{"4b1d"}, class: alnum, min: 38, check: looksLikeKey},
	{detector: "duffel_token", literals: []string{"duffel_test_", "duffel_live_"}, class: word | base64Rest, min: 40},
	{detector: "flyio_token", literals: []string{"fm1r_", "fm1a_", "fm2_"}, class: word | base64Rest, min: 60},
	{detector: "frameio_token", literals: []string{"fio-u-"}, class: word | base64Rest, min: 60},
	{detector: "gitlab_token", literals: []string{"gloas-", "GR1348941"}, class: word, min: 20, check: looksLikeKey},
	{detector: "harness_token", literals: []string{"pat.", "sat."}, class: word | dot, min: 60, check: looksLikeKey},
	{detector: "infracost_key", literals: []string{"ico-"}, class: alnum, min: 32, check: looksLikeKey},
	{detector: "intra42_secret", literals: []string{"s-s4t2ud-", "s-s4t2af-"}, class: alnum, min: 60},
	{detector: "artifactory_key", literals: []string{"cmVmd"}, class: alnum, min: 59},
	{detector: "mailgun_key", literals: []string{"pubkey-"}, class: alnum, min: 32, check: isHexTail},
	{detector: "octopus_key", literals: []string{"API-"}, class: upper | digit, min: 25, check: hasDigit},
	{detector: "onepassword_token", literals: []string{"A3-"}, class: upper | digit | dash, min: 32, check: hasDigit},
	{detector: "openshift_token", literals: []string{"sha256~"}, class: word, min: 40},
	{detector: "readme_key", literals: []string{"rdme_"}, class: alnum, min: 60},
	{detector: "scalingo_token", literals: []string{"tk-us-"}, class: word, min: 40},
	{detector: "settlemint_token", literals: []string{"sm_aat_", "sm_pat_", "sm_sat_"}, class: alnum, min: 16},
	{detector: "shippo_token", literals: []string{"shippo_live_", "shippo_test_"}, class: alnum, min: 40},
	{detector: "sonar_token", literals: []string{"sqp_", "squ_", "sqa_"}, class: alnum, min: 40},
	{detector: "sourcegraph_token", literals: []string{"sgp_", "slk_"}, class: word, min: 40, check: hasDigit},
	{detector: "typeform_token", literals: []string{"tfp_"}, class: word | base64Rest | dot, min: 50},
	{detector: "yandex_key", literals: []string{"AQVN"}, class: word, min: 35},
	{detector: "api_key", literals: []string{"APP_KEY=base64:"}, class: base64c, min: 40}, // of Laravel
	{detector: "crypt_hash", literals: []string{"$2a$", "$2b$", "$2y$", "$5$", "$6$", "$y$", "$7$"}, glued: true, class: alnum | base64Rest | dot | dollar, min: 30, check: endsInHash},
	{detector: "crypt_hash", literals: []string{"$1$", "$apr1$"}, glued: true, class: alnum | base64Rest | dot | dollar, min: 22, check: isMD5Crypt},
	{detector: "crypt_hash", literals: []string{",p="}, glued: true, class: alnum | base64Rest | dot | dollar, min: 24, check: endsInNumberAndHash},
	{detector: "clojars_token", literals: []string{"CLOJARS_"}, class: alnum, min: 50},
}

// endsInHash reports whether the last part of tail is as long as the shortest hash of crypt(3), and a salt stands before it.
// Those of `$5$6$7`, the arguments of a script, are not.
func endsInHash(tail string) bool {
	salt := strings.LastIndexByte(tail, '$')
	return salt > 0 && len(tail)-salt > 22
}

// isMD5Crypt reports whether tail is the salt and the hash of md5-crypt, less the dots that end some hashes and are taken for
// the end of a sentence. A path behind `$1$2$3` has another length, or no upper-case letter.
func isMD5Crypt(tail string) bool {
	salt, hash, _ := strings.Cut(tail, "$")
	return salt != "" && len(salt) <= 8 && len(hash) >= 20 && len(hash) <= 22 && !strings.Contains(hash, "$") && strings.ToLower(hash) != hash
}

// endsInNumberAndHash is endsInHash behind p=, the last parameter of argon2 and scrypt, which is a number.
func endsInNumberAndHash(tail string) bool { return isDigit(tail[0]) && endsInHash(tail) }

// looksLikeKey reports whether tail has a digit or an upper-case letter, which words joined by
// dashes seldom have.
func looksLikeKey(tail string) bool {
	for i := range len(tail) {
		if byteClass[tail[i]]&(digit|upper) != 0 {
			return true
		}
	}
	return false
}

// isHexTail reports whether tail begins with 32 to 64 lower-case hexadecimal digits.
func isHexTail(tail string) bool {
	n := 0
	for n < len(tail) && (isDigit(tail[n]) || tail[n] >= 'a' && tail[n] <= 'f') {
		n++
	}
	return n >= 32 && n <= 64 && hasDigit(tail)
}

// matchMailchimp matches 32 hexadecimal digits before -us<number>.
func matchMailchimp(s string, start, after int) (from, to, next int) {
	from = start
	for from > 0 && start-from < 33 && (isDigit(s[from-1]) || s[from-1] >= 'a' && s[from-1] <= 'f') {
		from--
	}
	if to = runEnd(s, after, digit); start-from == 32 && to-after <= 1 && (to == len(s) || byteClass[s[to]]&word == 0) {
		return from, to, to
	}
	return 0, 0, after
}

// matchAzureClient matches a client secret: three characters, the literal, 31 or more.
func matchAzureClient(s string, start, after int) (from, to, next int) {
	if to = runEnd(s, after, word|dot|tilde); start < 3 || to-after < 31 || runEnd(s[:start], start-3, word|dot|tilde) != start {
		return 0, 0, after
	}
	return start - 3, to, to
}

// matchTelegram matches <bot id>:AA<33 characters>, in URLs behind the word bot.
func matchTelegram(s string, start, after int) (from, to, next int) {
	from = start
	for from > 0 && start-from < 12 && isDigit(s[from-1]) {
		from--
	}
	to = runEnd(s, after, word)
	if n := start - from; n >= 8 && n <= 10 && to-after == 33 && (from == 0 || byteClass[s[from-1]]&letter == 0 || strings.HasSuffix(s[:from], "/bot")) {
		return from, to, to
	}
	return 0, 0, after
}

// matchTerraform matches <14 characters>.atlasv1.<60 or more>.
func matchTerraform(s string, start, after int) (from, to, next int) {
	from = start
	for from > 0 && start-from < 14 && byteClass[s[from-1]]&alnum != 0 {
		from--
	}
	if to = runEnd(s, after, word); start-from == 14 && to-after >= 60 {
		return from, to, to
	}
	return 0, 0, max(to, after)
}

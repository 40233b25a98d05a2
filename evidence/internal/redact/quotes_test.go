package redact

import (
	"strings"
	"testing"
)

// A quoted secret goes up to the end of its word, in the ways in which shells, YAML, PowerShell,
// SQL and CSV write a quote inside of it.
func TestQuotedSecrets(t *testing.T) {
	const secret = "hunter2x9"
	for in, want := range map[string]string{
		// The rest of a value behind an inner quote.
		`password: 'it''s-hunter2x9'`:                       `password: '#'`,
		`$env:DB_PASSWORD = 'it''s-hunter2x9'`:              `$env:DB_PASSWORD = '#'`,
		`Server=h;Password="ab""hunter2x9";Database=x`:      `Server=h;Password="#";Database=x`,
		`{\"cs\":\"Password=\\\"ab\\\"\\\"hunter2x9\\\"\"}`: `{\"cs\":\"Password=\\\"#\\\"\"}`,
		`{\"password\":\"ab\\\"hunter2x9\",\"n\":1}`:        `{\"password\":\"#\",\"n\":1}`,
		`export DB_PASSWORD='it'"'"'s-hunter2x9' A=b`:       `export DB_PASSWORD='#' A=b`,
		`export DB_PASSWORD='it'\''s-hunter2x9' A=b`:        `export DB_PASSWORD='#' A=b`,
		`export DB_PASSWORD="ab"'"'"hunter2x9" A=b`:         `export DB_PASSWORD="#" A=b`,
		`{"cmd":"P_PASSWORD='it'\\''s-hunter2x9' run"}`:     `{"cmd":"P_PASSWORD='#' run"}`,
		`{"cmd":"P_PASSWORD='it'\"'\"'s-hunter2x9' run"}`:   `{"cmd":"P_PASSWORD='#' run"}`,
		`DB_PASSWORD='ab'hunter2x9 A=b`:                     `DB_PASSWORD='# A=b`,
		`DB_PASSWORD=ab\ hunter2x9 A=b`:                     `DB_PASSWORD=# A=b`,
		`DB_PASSWORD=$'\x41hunter2x9' A=b`:                  `DB_PASSWORD=$'#' A=b`,
		`password = """ab'hunter2x9""" # x`:                 `password = "#" # x`,
		"password:\n  - 'it''s-hunter2x9'\n":                "password:\n  - '#'\n",
		`requirepass 'it1'"'"'s-hunter2x9'`:                 `requirepass '#'`,
		`mysql --password='it'"'"'s-hunter2x9' db`:          `mysql --password='#' db`,
		// Glued to a flag or a name.
		`mysql -u root -p'hunter2x9' shop < dump.sql`:     `mysql -u root -p'#' shop < dump.sql`,
		`mysqldump -uroot -p"hunter2x9" shop`:             `mysqldump -uroot -p"#" shop`,
		`mariadb -p'hunter2x9'`:                           `mariadb -p'#'`,
		`mysql -p$'hunter2x9' db`:                         `mysql -p#' db`,
		`mysql -p'it'"'"'s-hunter2x9' db`:                 `mysql -p'#' db`,
		`7z a -p'hunter2x9' x.7z f`:                       `7z a -p'#' x.7z f`,
		`unrar x -p"a b hunter2x9" x.rar`:                 `unrar x -p"#" x.rar`,
		`sh -c "mysql -u root -p'hunter2x9' db"`:          `sh -c "mysql -u root -p'#' db"`,
		`sh -c 'mysql -u root -p"hunter2x9" db'`:          `sh -c 'mysql -u root -p"#" db'`,
		`{"cmd":"mysql -u root -p\"hunter2x9\" db"}`:      `{"cmd":"mysql -u root -p\"#\" db"}`,
		`{"cmd":"sshpass -p \"a hunter2x9\" ssh h"}`:      `{"cmd":"sshpass -p \"#\" ssh h"}`,
		`sshpass -p'hunter2x9' ssh h`:                     `sshpass -p'#' ssh h`,
		`sshpass -p 'it'\''s-hunter2x9' ssh h`:            `sshpass -p '#' ssh h`,
		`ldapsearch -x -w "ab""hunter2x9" -b dc=x`:        `ldapsearch -x -w "#" -b dc=x`,
		`curl -u bob:'hunter2x9' https://x.invalid`:       `curl -u bob:'#' https://x.invalid`,
		`curl -u "bob":"hunter2x9" https://x.invalid`:     `curl -u "bob":"#" https://x.invalid`,
		`curl -u 'bob:it'\''s-hunter2x9' https://x`:       `curl -u 'bob:#' https://x`,
		`curl -u bob:'it'"'"'s-hunter2x9' https://x`:      `curl -u bob:'#' https://x`,
		`curl --user=bob:hunter2x9 https://x.invalid`:     `curl --user=bob:# https://x.invalid`,
		`curl --user bob:'a hunter2x9' https://x.invalid`: `curl --user bob:'#' https://x.invalid`,
		`curl --user 'bob:it'\''s-hunter2x9' https://x`:   `curl --user 'bob:#' https://x`,
		`curl --proxy-user="bob:hunter2x9" https://x`:     `curl --proxy-user="bob:#" https://x`,
		`smbclient //h/s -U bob%'hunter2x9' -c ls`:        `smbclient //h/s -U bob%'#' -c ls`,
		`lftp -u bob,'hunter2x9' h`:                       `lftp -u bob,'#' h`,
		`docker login -u bob -p'hunter2x9' r.invalid`:     `docker login -u bob -p'#' r.invalid`,
		`ldapsearch -x -w'hunter2x9' -b dc=x`:             `ldapsearch -x -w'#' -b dc=x`,
		`zip -P"hunter2x9" a.zip b`:                       `zip -P"#" a.zip b`,
		// Behind another quote, or in quotes themselves.
		`{"cmd":"mysql","args":["-u","root","-phunter2x9"]}`:                                  `{"cmd":"mysql","args":["-u","root","-p#"]}`,
		`{"command":"mysql --host=\"db\" -u root -phunter2x9 shop"}`:                          `{"command":"mysql --host=\"db\" -u root -p# shop"}`,
		`{"command":"curl --header=\"Accept: a/b\" -u bob:hunter2x9 https://x"}`:              `{"command":"curl --header=\"Accept: a/b\" -u bob:# https://x"}`,
		`curl -d {\"a\":1} -u bob:hunter2x9 https://x`:                                        `curl -d {\"a\":1} -u bob:# https://x`,
		`ran {"command":"docker login --username=\"bob\" -p hunter2x9 r.invalid"} and "more"`: `ran {"command":"docker login --username=\"bob\" -p # r.invalid"} and "more"`,
		"Run `docker login` -u bob -p hunter2x9 there":                                        "Run `docker login` -u bob -p # there",
		"Run `mysql` -u root -phunter2x9 there":                                               "Run `mysql` -u root -p# there",
		`plink -pw "hunter2x9 h`:                                                              `plink -pw "#`,
		// Only the first part looks like a password.
		`pass="hunter2x9""a b"`:                        `pass="#""a b"`,
		`pass=hunter2x9\ next word`:                    `pass=#\ next word`,
		`bash -lc \"pw=\"hunter2x9\"\" && echo 'done'`: `bash -lc \"pw=\"#\"\" && echo 'done'`,
		// The closing quote has fewer backslashes than the opening one.
		`curl -u \"bob:hunter2x9"`:   `curl -u \"bob:#"`,
		`sshpass -p \"hunter2x9"`:    `sshpass -p \"#"`,
		`{\"password\":\"hunter2x9"`: `{\"password\":\"#"`,
		// What a quote ends is no part of the secret.
		`sh -c "mysql -u root -phunter2x9" && echo "done"`:          `sh -c "mysql -u root -p#" && echo "done"`,
		`sh -c "mysql --password='hunter2x9'" && echo "done"`:       `sh -c "mysql --password='#'" && echo "done"`,
		`sh -c "mysql -u root -p'hunter2x9'" && echo "done"`:        `sh -c "mysql -u root -p'#'" && echo "done"`,
		`["DB_PASSWORD=hunter2x9","b"]`:                             `["DB_PASSWORD=#","b"]`,
		`{"a":"password=\"hunter2x9\"","b":"c"}`:                    `{"a":"password=\"#\"","b":"c"}`,
		`a,'password=''hunter2x9''','b'`:                            `a,'password='#''','b'`,
		`"password":"hunter2x9","user":"bob"`:                       `"password":"#","user":"bob"`,
		`printf "PASSWORD='hunter2x9'\nUSER='bob'\n"`:               `printf "PASSWORD='#'\nUSER='bob'\n"`,
		`fmt.Sprintf("password='hunter2x9'") + fmt.Sprint("x y z")`: `fmt.Sprintf("password='#'") + fmt.Sprint("x y z")`,
	} {
		out, _ := maskText(in)
		if got := strings.ReplaceAll(out, Placeholder(Assignment), "#"); got != want || strings.Contains(got, secret) {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
	for _, s := range []string{
		`sh -c "mysql -u root -p" && echo "done"`, `sh -c 'mysql -u root -p'; echo 'x y'`, `run "mysql -p" or "mysql -P 3306"`, `password: ''`, `{"password":"","user":"bob"}`,
		`curl -u "bob" -H "a: b" https://x`, `curl --user=bob https://x:80/`, `useradd --user="bob" x`, `PASSWORD="" USER="bob" x`, `mysql -u 'root' -h "db" -e 'select "a:b"'`,
		`password = ''''''`, `SET @s = 'PASSWORD = '''''`,
		"```\nhtpasswd \"myUser\" \"myPassword\"\n```\n\nThe next `function` of it",
	} {
		if out, spans := maskText(s); out != s {
			t.Errorf("%q became %q (%v)", s, out, spans)
		}
	}
}

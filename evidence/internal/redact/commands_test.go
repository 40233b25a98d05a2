package redact

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// A password argument is found in every place in which a shell or a program starts a command.
func TestCommandsInPlaces(t *testing.T) {
	const secret = "hunter2x9"
	headers := strings.Repeat(" -H 'Accept: text/plain, a/b'", 20)
	for in, want := range map[string]string{
		// Lines that a backslash joins.
		"curl -X POST \\\n  -u bob:hunter2x9 \\\n  https://h":          "curl -X POST \\\n  -u bob:# \\\n  https://h",
		"mysql \\\r\n -u root \\\r\n -phunter2x9 db":                   "mysql \\\r\n -u root \\\r\n -p# db",
		"curl -u \\\n bob:hunter2x9 https://h":                         "curl -u \\\n bob:# https://h",
		"redis-cli \\\n -h x \\\n -a \\\nhunter2x9 ping":               "redis-cli \\\n -h x \\\n -a \\\n# ping",
		`{"cmd":"@pscp -pw \\\nhunter2x9 x"}`:                          `{"cmd":"@pscp -pw \\\n# x"}`,
		"mysql -u root db\ncurl -u bob:hunter2x9 https://h":            "mysql -u root db\ncurl -u bob:# https://h",
		"mysql -u root \\\n db\nsudo curl -s -u bob:hunter2x9 x":       "mysql -u root \\\n db\nsudo curl -s -u bob:# x",
		"Run `mysql -u root` and then `curl -u bob:hunter2x9 h`":       "Run `mysql -u root` and then `curl -u bob:# h`",
		`{"cmd":"mysql -u root db\ncurl -u bob:hunter2x9 h\nls -a b"}`: `{"cmd":"mysql -u root db\ncurl -u bob:# h\nls -a b"}`,
		// In a command of another.
		`X="$(mysql -uroot -phunter2x9 -e x)"`:           `X="$(mysql -uroot -p# -e x)"`,
		`(mysql -uroot -phunter2x9 db < f)`:              `(mysql -uroot -p# db < f)`,
		`diff <(redis-cli -a hunter2x9 keys) y`:          `diff <(redis-cli -a # keys) y`,
		`x $(docker login -u bob -p hunter2x9 r)`:        `x $(docker login -u bob -p # r)`,
		"all:\n\t@mysql -phunter2x9 db\n":                "all:\n\t@mysql -p# db\n",
		`curl -H "A: $(redis-cli -a hunter2x9 get a)" h`: `curl -H "A: $(redis-cli -a # get a)" h`,
		`{\"cmd\":\"x $(curl -s -u bob:hunter2x9 h\"}`:   `{\"cmd\":\"x $(curl -s -u bob:# h\"}`,
		`mysql -h $(redis-cli -a hunter2x9 get h) db`:    `mysql -h $(redis-cli -a # get h) db`,
		// Quoted as shlex.quote does, or as '\''.
		`bash -lc 'export DB_PASSWORD='"'"'hunter2x9'"'"'; run'`:       `bash -lc 'export DB_PASSWORD='"'"'#'"'"'; run'`,
		`bash -lc 'mysql -p'"'"'hunter2x9'"'"' db'`:                    `bash -lc 'mysql -p'"'"'#'"'"' db'`,
		`bash -lc 'x --password '"'"'$a hunter2x9'"'"''`:               `bash -lc 'x --password '"'"'#'"'"''`,
		`bash -lc 'curl -u '"'"'bob:hunter2x9'"'"' h'`:                 `bash -lc 'curl -u '"'"'bob:#'"'"' h'`,
		`bash -lc 'curl --user '\''bob:hunter2x9'\'' h'`:               `bash -lc 'curl --user '\''bob:#'\'' h'`,
		`{"c":"bash -lc 'mysql -p'\"'\"'hunter2x9'\"'\"' db'"}`:        `{"c":"bash -lc 'mysql -p'\"'\"'#'\"'\"' db'"}`,
		`{"c":"bash -lc 'redis-cli -a '\\''hunter2x9'\\'' ping'"}`:     `{"c":"bash -lc 'redis-cli -a '\\'#'"}`,
		`{\"c\":\"sh -c 'x --token '\\\"'\\\"'hunter2x9'\\\"'\\\"''"}`: `{\"c\":\"sh -c 'x --token '\\\"'\\\"'#'\\\"'\\\"''"}`,
		// $'…' as an argument of its own.
		`redis-cli -a $'hunter2x9' ping`: `redis-cli -a $'#' ping`,
		`sshpass -p $"hunter2x9" ssh h`:  `sshpass -p $"#" ssh h`,
		`docker login -p $'hunter2x9' r`: `docker login -p $'#' r`,
		`curl -u $'bob:hunter2x9' h`:     `curl -u $'bob:#' h`,
		`curl --user $'bob:hunter2x9' h`: `curl --user $'bob:#' h`,
		`requirepass $'hunter2x9'`:       `requirepass $'#'`,
		`ldapsearch -w $'hunter2x9' -x`:  `ldapsearch -w $'#' -x`,
		// Lists in code.
		`subprocess.run(["redis-cli","-a","hunter2x9"])`:                     `subprocess.run(["redis-cli","-a","#"])`,
		`subprocess.run(['sshpass', '-p', 'hunter2x9', 'ssh'])`:              `subprocess.run(['sshpass', '-p'#', 'ssh'])`,
		`execFile('docker', ['login', '-u', 'bob', '-p', 'hunter2x9'])`:      `execFile('docker', ['login', '-u', 'bob', '-p', '#'])`,
		"run([\n  'sudo',\n  'unzip',\n  '-P',\n  'hunter2x9',\n])":          "run([\n  'sudo',\n  'unzip',\n  '-P',\n  '#',\n])",
		`{"code":"run([\"redis-cli\", \"-a\", \"hunter2x9\"])"}`:             `{"code":"run([\"redis-cli\", \"-a\", \"#\"])"}`,
		`{"code":"run([\n  \"ldapsearch\",\n  \"-whunter2x9\"])"}`:           `{"code":"run([\n  \"ldapsearch\",\n  \"-w#\"])"}`,
		`exec(["keytool", "-storepass", "hunter2x9", "-keystore", "x.jks"])`: `exec(["keytool", "-storepass"#", "-keystore", "x.jks"])`,
		// Far behind its command.
		"curl -s" + headers + " -u bob:hunter2x9 https://h":                                           "curl -s" + headers + " -u bob:# https://h",
		"curl -X POST https://h -d '{" + strings.Repeat(`"a":12,`, 100) + "}' -u bob:hunter2x9":       "curl -X POST https://h -d '{" + strings.Repeat(`"a":12,`, 100) + "}' -u bob:#",
		"mysql -u root -D " + strings.Repeat("shop", 130) + " -phunter2x9":                            "mysql -u root -D " + strings.Repeat("shop", 130) + " -p#",
		"mysql -u root -e 'x'\nWe read " + strings.Repeat("pages and ", 90) + "then docker -p80:80 x": "",
	} {
		if want == "" {
			want = in
		}
		out, _ := maskText(in)
		if got := strings.ReplaceAll(out, Placeholder(Assignment), "#"); got != want || strings.Contains(want, "#") && strings.Contains(got, secret) {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
	for _, s := range []string{
		"# Use mysql.\ndocker run -p8080:80 x", "(mysql) docker run -p8080:80 x", "mysql -u root; (docker run -p8080:80 x)", `["mysql"], then -p8080:80`, `curl -u bob, then ssh -p22 h`,
		`password='"'"'true'"'"'`, `if c == '\'' || c == '"' { token = '\''; x = '\'' }`, `run(["redis-cli", "-a", ""])`, `exec('mysql', ['-u', 'root'])`,
		"See mysql's manual (docs). " + strings.Repeat("It says a lot of things about it. ", 20) + "Publish it with -p3306:3306",
	} {
		if out, spans := maskText(s); out != s {
			t.Errorf("%q became %q (%v)", s, out, spans)
		}
	}
}

// A list of arguments has the password of any command in it, or of the program beside it.
func TestArgumentLists(t *testing.T) {
	for in, hits := range map[string]int{
		`["sudo","mysql","-uroot","-phunter2x9","db"]`:                                   1,
		`["docker","exec","db","mysql","-uroot","-phunter2x9","db"]`:                     1,
		`["/usr/bin/env","X=1","redis-cli","-a","hunter2x9"]`:                            1,
		`["curl","-A","http","-u","bob:hunter2x9","https://h"]`:                          1,
		`["sshpass","-p","hunter2x9","mysql","-phunter2x9"]`:                             2,
		`["sudo","docker","login","-u","bob","-p","hunter2x9"]`:                          1,
		`{"command":"mysql","args":["-uroot","-phunter2x9","db"]}`:                       1,
		`{"command":"/usr/bin/redis-cli","args":["-a","hunter2x9"]}`:                     1,
		`{"cmd":"docker","argv":["login","-p","hunter2x9"]}`:                             1,
		`{"x":[{"program":"sudo curl","arguments":["-u","bob:hunter2x9","https://h"]}]}`: 1,
		`{"command":["kubectl","exec","p","mysql"],"args":["-phunter2x9"]}`:              1,
		`{"command":"mysql","args":["-u","root",["-p80"]],"x":["-p80"]}`:                 0,
		`{"command":"ls","args":["-phunter"]}`:                                           0,
		`["mysql","-u","root",12,"-p80"]`:                                                0,
		`["psql","-p","5432","mysql"]`:                                                   0,
	} {
		var v any
		if err := json.Unmarshal([]byte(in), &v); err != nil {
			t.Fatal(err)
		}
		out, found, err := Document(v, "", nil, Config{})
		b, _ := json.Marshal(out)
		if err != nil || len(found) != hits || strings.Contains(string(b), "hunter2x9") {
			t.Errorf("%s became %s: %d hits, want %d (%v)", in, b, len(found), hits, err)
		}
		var c CleanChecker
		if n := checkCleaner(t, &c, []byte(in), ""); n == 0 && hits > 0 {
			t.Errorf("%s is clean", in)
		}
	}
}

// Texts of commands in all kinds of quotes, cut anywhere, are read without a panic, and the spans are the same twice.
func TestGeneratedCommands(t *testing.T) {
	r := rand.New(rand.NewPCG(34, 1))
	pieces := []string{"mysql", "curl", "docker login", "net user", "htpasswd", "redis-cli", " -p", " -u", " -a ", " --user ", " -b f bob ", "bob:", "hunter2x9", " ", "\\\n ", "\n", "\r\n", `\n`, `\\\n`, `'`, `"`, "`", `\"`, `'\''`, `'"'"'`, `'\"'\"'`, `'\\''`, `$'`, `$"`, "$(", ")", "(", "[", "]", ",", `","`, "', '", ";", "|", "&", "@", `\`, "--password=", "DB_PASSWORD=", "requirepass "}
	for range 20000 {
		var b strings.Builder
		for range 1 + r.IntN(24) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		s := b.String()
		first, second := fmt.Sprint(Scan(s)), fmt.Sprint(Scan(s))
		if first != second {
			t.Fatalf("%q: %s, then %s", s, first, second)
		}
	}
}

package functions

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Every file that a patch changes is listed, also one without a hunk.
func TestPatchFiles(t *testing.T) {
	for text, want := range map[string]string{
		"diff --git a/x b/x\nnew file mode 100644\nindex 0000000..e69de29\n":                      "true [a/x x b/x]",
		"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n":                                  "true [a/x x b/x]",
		"diff --git a/x y b/x y\nindex 1..2\nGIT binary patch\nliteral 2\n":                       "true [a/x y x y b/x y]",
		"diff --git x x\nnew mode 100755\n":                                                       "true [x]",
		"diff --git i/x w/x\nnew mode 100755\n":                                                   "true [i/x w/x x]",
		"diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n":                 "true [x y]",
		"diff --git a/x b/y\nnew mode 100755\n":                                                   "false []",
		"diff --git a/x b/y\nnew mode 100755\ndiff --git a/z b/z\n":                               "false [a/z z b/z]",
		"Binary files a/x and b/x differ\n":                                                       "true [a/x x b/x]",
		"Binary files a and b and c differ\n":                                                     "false []",
		"--- a/ok\n+++ b/ok\n@@ -1 +1 @@\n-a\n+b\ndiff --git a/.github/x b/.github/x\nnew file\n": "true [a/ok ok b/ok a/.github/x .github/x b/.github/x]",
		"diff --git \"a/x\" \"b/x\"\n":                                                            "false []",
		"*** Begin Patch\n*** Add File: a\n+x\n*** End of File\n*** End Patch":                    "true [a]",
		"*** Begin Patch\n*** Environment ID: x\n*** Add File: a\n+x\n*** End Patch":              "false [a]",
		"cd / && apply_patch <<E\n*** Begin Patch\n*** Add File: a\n+x\n*** End Patch\nE":         "false [a]",
		"*** a/x\n--- b/y\n***************\n*** 1 ****\n":                                         "false [b/y y]",
		"--- a/x\n+++ b/x\n@@ -1 +1 @@\n *** a list\n+*** b\n":                                    "true [a/x x b/x]",
		"--- .env x.go\n+++ .env x.go\n@@ -1 +1 @@\n-a\n+b\n":                                     "true [.env .env x.go]",
		"--- a/x y\t2026-01-01\n+++ b/x y\t2026-01-01\n":                                          "true [a/x y x y b/x y]",
		"Index:x\n@@ -1 +1 @@\n-a\n+b\n":                                                          "true [x]",
		"deleted file mode 100644\n--- a/x\n+++ b/x\n":                                            "false [a/x x b/x]",
		"hello": "false []",
	} {
		p := parsePatch(text)
		var names []string
		for _, f := range p.Files {
			if !slices.Contains(names, f.Path) {
				names = append(names, f.Path)
			}
		}
		if got := fmt.Sprint(p.Known, " ", names); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// What becomes of a file is said in a unified diff by its other name, its mode or its date.
func TestPatchActions(t *testing.T) {
	for text, want := range map[string]string{
		"--- a/x\n+++ b/x\n": "update", "--- a/x\n+++ /dev/null\n": "update delete", "--- /dev/null\n+++ b/x\n": "update add", "--- a/x\n\n+++ /dev/null\n": "update delete",
		"diff --git a/x b/x\ndeleted file mode 100644\n": "update delete", "diff --git a/x b/x\nnew file mode 100644\n": "update add", "diff --git a/x b/x\nnew mode 100755\n": "update",
		"Binary files a/x and /dev/null differ\n": "update delete", "Binary files /dev/null and b/x differ\n": "update add", "Binary files a/x and b/x differ\n": "update",
		"--- a/x\t2026-01-01\n+++ b/x\t1970-01-01 00:00:00 +0000\n": "update delete", "--- a/x\t1969-12-31 16:00:00 -0800\n+++ b/x\t2026-01-01\n": "update add",
		"--- a/x\n+++ /dev/null\n--- a/y\n+++ b/y\n": "update delete", "--- /dev/null\n+++ b/x\n--- a/y\n+++ b/y\n": "update add", "*** Delete File: x\n": "delete", "*** Add File: x\n": "add",
	} {
		p := parsePatch(text)
		var actions []string
		for _, f := range p.Files {
			if !slices.Contains(actions, f.Action) {
				actions = append(actions, f.Action)
			}
			if kept := strings.HasSuffix(f.Path, "y") && f.Action != "update"; kept {
				t.Errorf("%q: %+v", text, f)
			}
		}
		if got := strings.Join(actions, " "); !p.Known || got != want {
			t.Errorf("%q: known %v, %s, want %s", text, p.Known, got, want)
		}
	}
}

// Every table of a statement is listed, or the text is not known.
func TestSQLTables(t *testing.T) {
	for text, want := range map[string]string{
		"select * from (select 1) x, secret": "true [secret]", "select * from a join b on a.i=b.i, secret": "true [a b secret]", "select * from (secret join b on true)": "true [secret b]",
		"select * from only (secret)": "true [secret]", "select * from a \"x\", secret": "true [a secret]", "select * from a, lateral (select * from secret) x": "true [a secret]", "select * from a cross join secret": "true [a secret]",
		"select a, b from t where a = 1 and b in (1,2) order by a limit 5": "true [t]", "with a (q) as (select 1 from s) select * from a": "true [s a]", "insert into a.b (x, y) values (1, 'z')": "true [a.b]",
		"insert into t select * from u": "true [t u]", "update t set a = 1 where b = 2": "true [t]", "update t a set x=1 from secret": "true [t secret]", "delete from t where x in (select y from z)": "true [t z]",
		"drop table if exists t": "true [t]", "create table t (id int primary key, n varchar(20))": "true [t]", "alter table t add column c int": "true [t]", "select count(*), max(x) from t group by y": "true [t]",
		"select * from [dbo].[my table] t": "true [dbo.my table]", "explain analyze select * from t": "true [t]", "select a from t for update": "true [t]", "select 1 -- x\n": "true []",
		"insert secret values (1)": "false []", "create index i on secret (a)": "false []", "select (array[1,2])[(select n from secret)]": "false []", "select array[(select p from secret)]": "false []",
		"select 1 ---1 from secret": "false []", "select * from U&\"d!0061ta\" uescape '!'": "false [u]", "select q'[']' from secret -- '": "false []", "select 1 drop table t": "false [t]", "select 1 shutdown": "false []",
		"select dblink_exec('c','drop table t')": "false []", "select load_extension('x')": "false []", "copy secret to '/tmp/x'": "false []", "delete a from secret": "false [secret]", "update low_priority secret set a=1": "false []",
		"select 1from secret": "false []", "select 1e0from secret": "false []", "select 0x1from secret": "false []", "select 1.e0from secret": "false []", "select a from t where exists(select 1from secret)": "false [t]", "select 1drop table t": "false []",
		"select 1\u00a0from\u00a0secret": "false []", "select 1\u2003from\u2003secret": "false []", "select 1\u3000from\u3000secret": "false []", "select 1\xa0from\xa0secret": "false []",
		"select a from größe where x = 1.5e3 or y = 0x1F or t1.e0 = 2": "true [größe]",
		"select * from t for system_time all, secret":                  "false [t]", "select * from t for version as of 1, secret": "false [t]", "select a from t for no key update": "true [t]", "select a from t for share": "true [t]",
		"select a from t order by b desc": "true [t]", "select a from t order by b desc, c limit 10": "true [t]", "desc secret": "true [secret]", "describe secret": "true [secret]", "explain secret": "false []", "explain desc secret": "false []",
		"explain verbose select a from t": "true [t]", "explain select a from t": "true [t]",
		"select 1 as a revert": "false []", "select a revert": "false []", "select 1 as a receive * from q": "false []", "select 1 as a setuser 'x'": "false []", "select a from t checkpoint": "false [t]", "select 1 throw 1, 'a', 1": "false []", "select 1 as a disable trigger x on t": "false []",
		"select 1 as a close c deallocate c": "false []", "select 1 as a writetext t.c 1 'x'": "false []", "select 1 a b c d": "false []", "select null a b": "false []", "select count(1) a b": "false []", "select 1 as a end conversation 'x'": "false []", "delete from t where a = 1 return": "false [t]",
		"select a from t where b = 1 move conversation x": "false [t]", "select a from t send on conversation": "false [t]", "insert into t values (1) revert": "false [t]", "update t set a = 1 open c": "false [t]", "select a b from t where (a = 1) checkpoint": "false [t]",
		"select close, p.open, max(x) as close from prices p where close > 1": "true [prices]", "select a b, 1 as c, count(*) n, 'x' d, t.a.b e from t": "true [t]", "select cast(a as text), b::text from t where c > now() - interval 1 day": "true [t]",
		"select case when a is null then 1 else 0 end x, date '2026-01-01' y from t order by b desc nulls last": "true [t]", "select a at time zone 'utc' b from t": "true [t]", "select a from t where b ~ 'x' and c >= 5.5e3": "true [t]", "with a as (select 1) select a.b, row_number() over (order by c desc) n from a": "true [a]",
		"select sum(a) over (partition by b order by c rows between unbounded preceding and current row) s from t": "true [t]", "select a from t where b like 'x' escape '!' collate nocase": "true [t]",
		"select 1 as a add signature to x by certificate c": "false []", "drop table t revert": "false [t]", "select 1 zone revert": "false []", "select 1 filter revert": "false []", "select 1 int checkpoint": "false []", "select 1 interval disable trigger x on t": "false []", "select 1 interval a b": "false []",
		"select a from t where open > 1 and not close = any (select open from u) order by close": "true [t u]", "select a + close, (open), case when open then close else send end from t": "true [t]", "select a from t join u on t.i = u.i revert": "false [t u]",
		"select evil.count(1)": "false []", "select a.b.concat(1)": "false []", "select evil.left(1)": "false []", "select evil.numeric (1)": "false []", "insert into a.count (x) values (1)": "true [a.count]",
		"select extract(year from d) from t": "true [t]", "select trim(both ' ' from x), substring(x from 1 for 2), overlay(x placing 'a' from 1 for 2) from t": "true [t]", "select trim(leading from (select a from secret)) from t": "true [secret t]",
		"select trim(select a from secret) from t": "true [secret t]", "select x.extract(year from secret) from t": "false [secret t]",
		"select a from f(x)": "false [f]", "select * from 'x.parquet'": "false []", "grant select on secret to u": "false []", "select * from a b c, secret": "false [a]", "select a from t where (": "false [t]", "create table t (like secret)": "false [t]", "create table t () inherits (secret)": "false [t]",
	} {
		got := parseSQL(text)
		var tables []string
		for _, s := range got.Statements {
			tables = append(tables, s.Tables...)
		}
		if fmt.Sprint(got.Known, " ", tables) != want && !(!got.Known && strings.HasPrefix(want, "false")) {
			t.Errorf("%q: %v %v, want %s", text, got.Known, tables, want)
		}
	}
	for text, reads := range map[string]bool{"select 1": true, "select load_extension('x')": false, "select 1 shutdown": false, "select lower(a) from b": true, "select s.nextval from dual": false, "explain delete from t": false, "select evil.count(1)": false, "select 1 as a revert": false, "select a from t order by b desc": true} {
		if got := parseSQL(text).Statements[0].Reads; got != reads {
			t.Errorf("%q reads: %v", text, got)
		}
	}
}

// A comment ends where every dialect ends it, or the text is not known.
func TestSQLComments(t *testing.T) {
	for text, known := range map[string]bool{
		"select 1 -- x\nfrom t": true, "select 1 -- x\r\nfrom t": true, "select 1 --\r\nfrom t": true, "select 1 --": true, "select 1\rfrom t -- é": true, "select 1 /* a\rb */": true,
		"select 1 -- x\r; drop table users": false, "select 1 -- x\r; drop table users\r\n": false, "select 1 --\r; drop table users": false, "select 1 -- x\v; drop table users": false,
		"select 1 -- x\f; drop table users": false, "select 1 -- x\u0085; drop table users": false, "select 1 -- x\u2028; drop table users": false, "select 1 -- x\u2029; drop table users": false,
		"select 1 --x\n": false,
	} {
		if got := parseSQL(text); got.Known != known {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// A list of tables is read once, however many words there are that begin one.
func TestSQLIsReadOnce(t *testing.T) {
	allocations := func(n int) float64 {
		text := strings.Repeat("FROM A,", n)
		return testing.AllocsPerRun(1, func() { parseSQL(text) })
	}
	if few, many := allocations(500), allocations(2000); many > 6*few {
		t.Errorf("four times the text makes %.0f allocations, not %.0f", many, few)
	}
}

// A character that becomes many is charged for them.
func TestFoldingIsCharged(t *testing.T) {
	s := strings.Repeat("\ufdfa", 1000)
	if in, out := len(s), len(foldPath(s)); ExtraCost("path.touches", s) < uint64(out/16) || out < 5*in {
		t.Errorf("%d bytes become %d, charged %d", in, out, ExtraCost("path.touches", s))
	}
	if ExtraCost("path.touches", "/etc/passwd") != 0 || ExtraCost("shell.parse", s) != 0 {
		t.Error("a charge for nothing")
	}
}

// A file of the agent's that has the name of a program is not that program.
func TestViewOfAProgramElsewhere(t *testing.T) {
	for program, known := range map[string]bool{
		"git": true, "/usr/bin/git": true, "/bin/../usr/bin/git": true, "./git": false, "/tmp/x/git": false, "bin/git": false, "../git": false, "/usr/bin/x/git": false, "": false,
	} {
		if v := parseView([]string{program, "status"}); v.Known != known || known != (v.Program == "git") {
			t.Errorf("%q: %+v", program, v)
		}
	}
}

// Every letter of a cluster is an option.
func TestViewLongCluster(t *testing.T) {
	if v := parseView([]string{"git", "push", "-" + strings.Repeat("v", 20) + "f"}); !slices.Contains(v.Options, "-f") {
		t.Error(v.Options)
	}
}

// The words of a subcommand that programs says are all read, or the view is not known.
func TestViewSubcommands(t *testing.T) {
	for line, want := range map[string]string{
		"aws s3 rm s3://b --recursive": "true s3 rm", "aws --region eu s3 rm s3://b": "true s3 rm", "aws s3 --region eu rm s3://b": "false s3", "aws s3 --region=eu rm s3://b": "false s3", "aws configure": "true configure", "aws configure --help": "true configure",
		"gh pr merge 5": "true pr merge", "gh pr -R o/r merge 5": "false pr", "gh repo deploy-key delete 1": "true repo deploy-key delete", "gh repo deploy-key -R o/r delete 1": "false repo deploy-key", "gh api -X DELETE repos/o/r": "false api",
		"gcloud compute instances delete vm": "true compute instances delete vm", "gcloud compute --project p instances delete vm": "false compute", "gcloud iam service-accounts keys --iam-account=a delete k": "false iam service-accounts keys",
		"gcloud beta compute instances delete vm --quiet": "true beta compute instances delete vm", "gcloud compute instances list --filter=x": "true compute instances list",
		"az network vnet subnet delete -n x": "true network vnet subnet delete", "az vm list --output json": "true vm list",
		"docker container rm x": "true container rm", "docker volume rm x": "true volume rm", "docker run -it image": "true run", "docker ps -a": "true ps", "docker compose -f x.yml down": "false compose",
		"terraform state rm a.b": "true state rm", "terraform workspace delete x": "true workspace delete", "tofu state rm a.b": "true state rm", "terraform plan -out x": "true plan", "terraform state -x rm a.b": "false state",
		"npm publish": "true publish", "npm publ": "false publ", "npm i": "false i", "npm xyzzy": "false xyzzy", "npm run build": "true run", "yarn npm publish": "true npm publish", "yarn build": "false build", "yarn workspace a publish": "false workspace", "pnpm publ": "false publ", "pnpm -r publish": "true publish",
		"cargo +nightly publish": "false +nightly", "cargo publish": "true publish", "cargo b": "false b", "gem pus x": "false pus", "gem push x": "true push", "composer rem x": "false rem", "composer remove x": "true remove", "helm del x": "false del", "helm uninstall x": "true uninstall",
		"pip install x": "true install", "uv pip install x": "true pip", "docker xyzzy": "false xyzzy", "gh co 1": "false co 1", "brew rm x": "false rm", "apt install x": "true install", "apt-get -y install x": "true install", "apk add x": "true add", "dnf rm x": "false rm", "yum update": "true update",
		"git push -f": "true push", "kubectl delete -f x": "true delete", "helm repo remove x": "true repo", "docker trust signer remove x": "true trust signer",
	} {
		if v := parseView(strings.Fields(line)); fmt.Sprint(v.Known, " ", v.Command) != want {
			t.Errorf("%s: %v %s, want %s", line, v.Known, v.Command, want)
		}
	}
}

// What may lie below a directory touches it: where homes are is not known.
func TestTouchesHomes(t *testing.T) {
	for _, c := range []struct {
		path, root string
		want       bool
	}{
		{"/home/anna/.ssh/id_rsa", "~/.ssh", true}, {"/root/.SSH", "~/.ssh", true}, {"/home/anna/src/main.go", "~/.ssh", false}, {"/home/anna/.ssh2/x", "~/.ssh", false}, {"/home/anna", "~", true},
		{"~/.ssh/id_rsa", "/home/anna/.ssh", true}, {"~root/x", "/root", true}, {"~www-data/x", "/var", true}, {"~/x", "/", true},
		{"~/.ssh/x", "~/.ssh", true}, {"~anna/.ssh/x", "~/.ssh", true}, {"~/src", "~/.ssh", false}, {"~/x", "~", true},
		{"x/.ssh/id", "~/.ssh", false}, {"x", "~", false}, {"~x", "~", true},
		{"/e*c/ssh", "/etc", true}, {"/*", "/etc", true}, {"/e*", "/etc", true}, {"/etc/*", "/etc", true}, {"/*/x", "/etc/ssh", false}, {"/w*c/ssh", "/etc", false}, {"/workspace/*.go", "/etc", false}, {"/workspace/**/x", "/workspace/a/b", true}, {"/**", "/etc/ssh", true},
		{"/e?c/ssh", "/etc", true}, {"/[e]tc", "/etc", true}, {"/{etc,usr}/x", "/etc", true}, {"/ETC*/x", "/etc", true}, {"/x*", "/", true}, {"/home/*/.s*h/id", "~/.ssh", true}, {"/home/anna/*.go", "~/.ssh", false}, {"*", "/etc", false},
		{"x/etc", "etc", true}, {"/w/x", "etc", true}, {"/w/x", "", true}, {"/w/x", "~/../x", true}, {"/w/etc", "/etc", false},
	} {
		if got := touches(c.path, c.root); got != c.want {
			t.Errorf("%q touches %q: %v", c.path, c.root, got)
		}
	}
}

// A path that clients rewrite before they send it is not one URL to every reader.
func TestAddressPaths(t *testing.T) {
	for path, known := range map[string]bool{
		"/v1/public/../admin": false, "/v1/public/%2e%2e/admin": false, "/v1/public/.%2E/admin": false, "/v1/./x": false, "/v1/%2e": false, "/v1/..": false, "/..": false,
		"": true, "/": true, "/v1/public/x": true, "/a.b/...": true, "/.well-known/x": true, "/a..b": true, "/x?y=../z": true,
	} {
		if a := ParseAddress("https://a.example" + path); a.Known != known {
			t.Errorf("%q: %+v", path, a)
		}
	}
}

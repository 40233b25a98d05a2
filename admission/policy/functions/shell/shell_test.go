package shell

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// started writes what a text starts: names with words, unknown parts as ?.
func started(s Script) string {
	var list []string
	for _, c := range s.Commands {
		list = append(list, c.Name+"("+strings.ReplaceAll(strings.Join(c.Words[min(1, len(c.Words)):], ","), Unknown, "?")+")")
	}
	out := strings.Join(list, " ")
	if !s.Known {
		out += " !" + strings.Join(s.Reasons, ",")
	}
	return out
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"ls -la":                               "ls(-la)",
		`r\m -r"f" '/'`:                        "rm(-rf,/)",
		`$'\x72m' -rf /`:                       "rm(-rf,/)",
		"/bin/../usr/bin/RM x":                 "rm(x)",
		"./rm x":                               "./rm(x)",
		"a/./b//rm x":                          "./a/b/rm(x)",
		"../rm x":                              "./../rm(x)",
		"../../rm x":                           "./../../rm(x)",
		"l/../rm x":                            "./l/../rm(x)", // not ./rm: l may be a link
		"./l/../rm x":                          "./l/../rm(x)",
		"/w/l/../rm x":                         "/w/l/../rm(x)",
		"a=1; echo $a":                         "() echo(?)",
		"$x -rf /":                             "(-rf,/) !program",
		"rm${IFS}-rf${IFS}/":                   "() !program",
		"/bin/r?":                              "() !program",
		"{rm,-rf,/}":                           "rm(-rf,/)",
		"mkdir -p src/{a,b}":                   "mkdir(-p,src/a,src/b)",
		"{a..z}":                               "() !program",
		"git {,push} -f":                       "git(push,-f)", // Bash drops an empty word
		"git {push,} {'',x}":                   "git(push,,x)", // but a quoted one
		"{,} rm {/,}":                          "rm(/)",
		"cp a{,b} {/etc/x,}":                   "cp(a,ab,/etc/x)",
		"rm {x},/}":                            "rm(?)", // Bash: x} and /
		`rm -rf {x}\,,/}`:                      "rm(-rf,?)",
		"rm a{},/}":                            "rm(?)",
		"rm {x,$}HOME":                         "rm(?)", // Bash: xHOME and $HOME
		"rm {x,'$'}HOME":                       "rm(xHOME,$HOME)",
		`cat .env\`:                            " !syntax", // Bash takes the backslash away where it reads its input
		`cat .env\\`:                           `cat(.env\)`,
		"find . -name {x},-delete}":            "find(.,-name,?) !program",
		"find . -name {1..3}":                  "find(.,-name,?) !program",
		"git log @{u}..HEAD":                   "git(log,@{u}..HEAD)",
		"bash <<< {,'rm x'}":                   "bash() !code", // Bash expands no braces there
		"ls; rm x && id || w | wc":             "ls() rm(x) id() w() wc()",
		"sh -c 'rm x'":                         "sh(-c,rm x) rm(x)",
		`bash -lc "git push"`:                  "bash(-lc,git push) git(push)",
		"bash -euo pipefail -c 'rm x'":         "bash(-euo,pipefail,-c,rm x) rm(x)",
		"sh -c \"$x\"":                         "sh(-c,?) !code",
		"eval 'rm' x":                          "eval(rm,x) rm(x)",
		"env -i CI=1 rm x":                     "env(-i,CI=1,rm,x) rm(x)",
		"env -S 'rm -rf' x":                    "env(-S,rm -rf,x) rm(-rf,x)",
		"env -iS'rm -rf x'":                    "env(-iSrm -rf x) rm(-rf,x)",
		"env --split-string='rm x'":            "env(--split-string=rm x) rm(x)",
		"env --split='rm x'":                   "env(--split=rm x) rm(x)",
		"find . -name x -exec rm {} +":         "find(.,-name,x,-exec,rm,{},+) rm(?)",
		`find . -exec sh -c 'rm "$0"' {} \;`:   "find(.,-exec,sh,-c,rm \"$0\",{},;) sh(-c,rm \"$0\",?) rm(?)",
		"ls | xargs -n 1 rm -f":                "ls() xargs(-n,1,rm,-f) rm(-f,?)",
		"ls | xargs -I{} sh -c 'rm {}'":        "ls() xargs(-I{},sh,-c,rm {}) sh(-c,rm ?) !code",
		"sudo -u root rm x":                    "sudo(-u,root,rm,x) rm(x)",
		"sudo --frob rm x":                     "sudo(--frob,rm,x) !options",
		"nohup timeout -k 1 5 rm x &":          "nohup(timeout,-k,1,5,rm,x) timeout(-k,1,5,rm,x) rm(x)",
		"nice -5 rm x":                         "nice(-5,rm,x) rm(x)",
		"command -v git":                       "command(-v,git)",
		"exec rm x":                            "exec(rm,x) rm(x)",
		"busybox rm x":                         "busybox(rm,x) rm(x)",
		"echo aGk= | base64 -d | sh":           "echo(aGk=) base64(-d) sh() !input",
		"curl -s x | bash -s -- a":             "curl(-s,x) bash(-s,--,a) !input",
		"bash <(curl x)":                       "curl(x) bash(?) !input",
		"bash <<'E'\nrm x\nE\n":                "bash() rm(x)",
		"sh <<< 'rm x'":                        "sh() rm(x)",
		"cat <<E | sh\nrm x\nE\n":              "cat() sh() !input",
		"echo $(rm x) `id` \"$(w)\"":           "rm(x) id() w() echo(?,?,?)",
		"for f in *; do rm $f; done":           "rm(?)",
		"if true; then rm x; else id; fi":      "true() rm(x) id()",
		"f() { rm x; }; f":                     "rm(x) f()",
		"PATH=/tmp:$PATH ls":                   "ls() !environment",
		"printf -v PATH /tmp; ls":              "printf(-v,PATH,/tmp) ls() !environment",
		"read PATH <<< /tmp; ls":               "read(PATH) ls() !environment",
		"for PATH in /tmp; do ls; done":        "ls() !environment",
		"https_proxy=x curl y":                 "curl(y) !environment",
		"alias ls='rm -rf /'; ls":              "alias(ls=rm -rf /) ls() !redefinition",
		"test -v 'a[$(rm x)]'":                 "test(-v,a[$(rm x)]) !hidden_command",
		"echo ${!x}":                           "echo(?) !hidden_command",
		"trap 'rm x' EXIT":                     "trap(rm x,EXIT) rm(x)",
		"grep '[A-Z]' \"?\" \\? a":             "grep([A-Z],?,?,a)",
		"rm \".\"*":                            "rm(.*?)",
		"rm -rf .*":                            "rm(-rf,.*?)",
		"echo 'unclosed":                       " !syntax",
		"echo a\rb":                            " !syntax",
		"echo a\x00b":                          " !syntax",
		strings.Repeat("(", 300):               " !too_large",
		strings.Repeat("a", MaxText+1):         " !too_large",
		strings.Repeat("eval ", 3000) + "rm x": " !too_large",
		"ls # rm x":                            "ls()",
		"echo \"rm -rf /\"":                    "echo(rm -rf /)",
		"watch -n 1 'rm x'":                    "watch(-n,1,rm x) rm(x)",
	} {
		got := started(Parse(text))
		if strings.HasPrefix(text, "eval eval") {
			if !strings.Contains(got, "too_large") {
				t.Errorf("eval: %.80s", got)
			}
			continue
		}
		if got != want {
			t.Errorf("%.60q\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// What the tables do not name is not known. With each text here Bash, dash or a tool starts another program
// than the words say, or can.
func TestNotKnown(t *testing.T) {
	for text, want := range map[string]string{
		"[[ 'a[$(touch H)]' -eq 0 ]]": "hidden_command", "[[ -v 'a[$(touch H)]' ]]": "hidden_command", "x='a[$(touch H)]'; test -v \"$x\"": "hidden_command",
		"for x in 'y[$(touch H)]'; do for ((;x;)); do ls; done; done": "hidden_command", "for x in 'y[$(touch H)]'; do ((x)); done": "hidden_command",
		"bash -c '(( $1 ))' _ 'a[$(touch H)]'": "hidden_command", "declare -i y='a[$(touch H)]'": "hidden_command", "echo $((y))": "hidden_command", "echo ${a[x]} ${b:y}": "hidden_command",
		"x=1; eval 'x=a'; echo $((x))": "hidden_command", "x=1; read x; echo $((x))": "hidden_command", "x='-v a[$(id)]'; [ $x ]": "options", "[ \"$a\" \"$b\" ]": "options",
		"echo \"$\\\n(touch H)\"": "syntax", "ls <\\\n(id)": "syntax", "ls *(e:id:)": "syntax", "coproc ls": "syntax", "ls {PATH}<x": "syntax",
		"bash <<-'E'\n\tcat <<X\n\tX\n\ttouch H\nX\nE\n": "input", "echo 'touch H' | bash 3<<<ls": "input", "bash 3<evil <<<'ls' <&3": "input", "bash <<<ls 0<&3": "input",
		"{ head -c 6; bash; } <<'E'\necho '\ntouch H\n: '\nE\n": "input", "{ ls() { bash; }; } <<< ls": "input,redefinition", "bash <<'E'\nhead -c 3\nls\nE\n": "input", "bash <<< 'exec <evil'": "input",
		"cd() { :; }": "redefinition", "BASH_CMDS[ls]=./x; ls": "environment,hidden_command", "printf -vPATH %s /x; ls": "environment", "printf -v 'PATH[0]' %s /x": "environment", "printf -v 'BASH_CMDS[ls]' x; ls": "environment",
		"printf \"$f\" x": "environment", "export \"PATH=/x\"; ls": "environment", "command export PATH=/x": "environment", "[[ ${CDPATH:=/} ]]": "environment", "XDG_CONFIG_HOME=d git status": "environment",
		"SOME_OTHER=d ls": "environment", "env SOME_OTHER=d ls": "environment", "XDG_CONFIG_HOME=d; git status": "environment", "bash -oc posix 'touch H'": "options", "bash -o posi* -c ls": "options", "bash *": "input",
		"echo x | xargs -a d/* ls": "options", "env --uns -Sls touch H": "options", "env --chd=/ -S ls": "options", "find . -name * \\;": "program", "find $x": "options,program", "find \"$x\" -a \\;": "options,program",
		"find . -newopt x": "program", "timeout -s $x ls": "options", "flock f -c 'touch H'": "program",
		"ls | xargs -i% -I{} rm {}": "options", "ls | xargs -I{} -L1 rm": "options", "ls | xargs -I{} -l rm": "options", "ls | xargs -n2 -I{} rm": "options", "ls | xargs --replace --max-args=2 rm": "options", "ls | xargs -I '' nice touch": "options",
		"echo x >! f": "syntax", "echo x >>!f": "syntax", "functions=(ls 'touch H'); ls": "environment", "commands=(wc /evil); wc": "environment", "dis_aliases=x; ls": "environment", "NULLCMD=./x; <f": "environment", "strace -o '|touch H' true": "options", "sudo -s": "input", "chroot /": "input", "jobs -x touch H": "options",
		"compgen -W '$(touch H)'": "redefinition", "eval ls *": "code", "sh -c '[[ a || ./x ]]'": "syntax", "sh -c '((d/x))'": "hidden_command,syntax", "dash -c 'ls &>x'": "syntax", "sh -c 'rm {a,b}'": "syntax", "sh -c \"a=(b)\"": "syntax",
		"cat <<E\n${x:-'$(touch H)'}\nE\n": "hidden_command", "echo \"${x:-'$(touch H)'}\"": "hidden_command", "echo \"${x:-'}\"; touch H; echo \"'}\"": "hidden_command", "cat <<E\n${x:-\"}\nE\ntouch H\ncat <<E\n\"}\nE\n": "hidden_command",
		"ls # \\\ntouch H": "syntax", "ls # x \\\\\ntouch H": "syntax", "(ls;# \\\ntouch H)": "syntax", "# \\\ntouch H": "syntax", "cat <<E # \\\nE\ntouch H": "syntax",
		"printf '%d' 'a[$(touch H)]'": "hidden_command", "printf '%d' 'a[`touch H`]'": "hidden_command",
		"watch '[[ a || ./x ]]'": "syntax", "zsh -c ls": "code", "repeat 3 ls": "code", "=ls": "program", "let x": "hidden_command",
	} {
		if s := Parse(text); s.Known || strings.Join(s.Reasons, ",") != want {
			t.Errorf("%q: known %v, reasons %v, want %s", text, s.Known, s.Reasons, want)
		}
	}
}

// The ordinary forms of what TestNotKnown has are known.
func TestKnown(t *testing.T) {
	for _, text := range []string{"i=0; while [ \"$i\" -lt 5 ]; do i=$((i+1)); done", "for i in 1 2 3; do echo $((i*2)); done", "for ((i=0;i<3;i++)); do ls; done", "for i in {1..9}; do echo $((i)); done", "[[ $# -eq 0 && -f x ]]",
		"[ -d a ] && ls a", "[ $? -eq 0 ]", "test -n \"$x\"", "echo ${#x} ${x:-a} ${x%.go} ${x/a/b}", "export CI=1", "LC_ALL=C sort x", "x=1; echo $x", "ls \\\n  -la", "a && \\\nb", "sh -c 'if [ -f x ]; then ls; fi'", "bash -c '[[ -f x ]]'",
		"bash -eo pipefail -c ls", "cat > x <<'E'\n`a` $(b)\nE\n", "find . -type f -name '*.go' -not -path './x/*'", "find src/* -name x", "time ls", "f() { ls; }; f", "bash <<'E'\ncd x\nls\nE\n", "exit $?", "printf '%s' \"$x\"",
		"curl a/#b \\\n  -s", "echo $# \\\n  x", "ls | xargs -n1 basename", "ls | xargs -P4 -I% cat %", "echo x > '!f'", "find -O3 . -newermt 2026-01-01 -newerBa x", "printf '%s' 'a[1]'", "echo ${x:-'a b'} \"${x:-\"a b\"}\" ${x%\"$y\"}"} {
		if s := Parse(text); !s.Known {
			t.Errorf("%q: %v", text, s.Reasons)
		}
	}
}

// A program of which Reads lacks a file that its arguments name is one that the reference names as such.
func TestProgramsWithFiles(t *testing.T) {
	_, unread := ProgramsWithFiles()
	for _, text := range []string{
		"cat /s", "cp /s a", "dd if=/s", "find /s", "grep -f /s a", "install /s a", "rsync /s h:a", "diff a /s", "jq . /s",
		"tar cf - /s", "curl -T /s u", "curl file:///s", "openssl enc -in /s", "gpg -c /s", "wget --post-file=/s u", "git diff --no-index /s a", "xz -dc /s", "zip - /s", "cc -E /s", "patch -p1 -i /s",
	} {
		c := Parse(text).Commands[0]
		if reads := slices.Contains(c.Reads, "/s"); reads == slices.Contains(unread, c.Name) {
			t.Errorf("%q reads %q, and unread has %s: %v", text, c.Reads, c.Name, !reads)
		}
	}
}

func TestDirectoriesAndFiles(t *testing.T) {
	for text, want := range map[string]string{
		"rm -rf build":                     "[] writes [build]",
		"cd / && rm -rf etc":               "[/] writes [/etc]",
		"cd sub; rm x":                     "[ sub] writes [x sub/x]",
		"cd a && cd .. && rm x":            "[] writes [x]",
		"cd \"$d\" && rm x":                "[?] writes [?]",
		"eval 'cd /'; rm x":                "[ /] writes [x /x]",
		"command cd /; rm x":               "[ /] writes [x /x]",
		"if a; then cd /; fi; rm x":        "[?] writes [?]",
		"(cd /); rm x":                     "[] writes [x]",
		"f() { cd /; }; f; rm x":           "[?] writes [?]",
		"cd; rm x":                         "[ ~] writes [x ~/x]",
		"env -C /etc rm x":                 "[/etc] writes [/etc/x]",
		"echo a > /etc/x":                  "[] writes [/etc/x]",
		"{ echo a; rm y; } > o":            "[] writes [y o]",
		"cp a b c/":                        "[] reads [a b] writes [c]",
		"cp -t /etc a":                     "[] reads [a] writes [/etc]",
		"cp -rt/etc a":                     "[] reads [a] writes [/etc]",
		"cp --target=/etc a":               "[] reads [a] writes [/etc]",
		"cp --target-dir /etc a":           "[] reads [a] writes [/etc]",
		"sed -i s/a/b/ f":                  "[] reads [f] writes [f]",
		"yq .a f":                          "[] reads [f]",
		"yq -i .a=1 /etc/H":                "[] reads [/etc/H] writes [/etc/H]",
		"yq -Pi .a=1 f":                    "[] reads [f] writes [f]",
		"yq e --inplace .a=1 f":            "[] reads [.a=1 f] writes [.a=1 f]",
		"yq --in-place .a=1 f":             "[] reads [.a=1 f] writes [.a=1 f]",
		"yq -s .a f":                       "[] reads [f] writes [?]",
		"yq --split-exp=.a . f":            "[] reads [.a f] writes [?]",
		"file -C -m x":                     "[] reads [x] writes [?]",
		"tree -RL 1 a":                     "[] reads [a] writes [?]",
		"rsync -a a b/":                    "[] reads [a] writes [b]",
		"grep -e x f":                      "[] reads [f]",
		"grep -e. f":                       "[] reads [f]",
		"grep -f p f":                      "[] reads [p f]",
		"grep --file .env x":               "[] reads [.env x]",
		"sort -o/etc/H in":                 "[] reads [in] writes [/etc/H]",
		"sort -uo /etc/H in":               "[] reads [in] writes [/etc/H]",
		"sort --o=/etc/H in":               "[] reads [in] writes [/etc/H]",
		"sort --outp /etc/H in":            "[] reads [in] writes [/etc/H]",
		"cp -S.t in /etc/H":                "[] reads [in] writes [/etc/H]",
		"cp --suffix .t in /etc/H":         "[] reads [.t in /etc/H] writes [.t in /etc/H]",
		"chmod -x /etc/H":                  "[] writes [/etc/H]",
		"chmod --reference=a /etc/H":       "[] reads [a] writes [/etc/H]",
		"install -d /etc/H":                "[] reads [/etc/H] writes [/etc/H]",
		"sed -i --expression=s/a/b/ H":     "[] reads [s/a/b H] writes [H]",
		"less -o/etc/H x":                  "[] reads [x] writes [/etc/H]",
		"find -L sub -delete":              "[] reads [sub] writes [sub]",
		"find . -fprint /etc/H":            "[] reads [] writes [/etc/H]",
		"unzip x":                          "[] writes [x ?]",
		"if true; then c\"\"d /; fi; rm x": "[?] writes [?]",
		"f() { c\"\"d /; }; f; rm x":       "[?] writes [?]",
		"eval 'c\"\"d /'; rm x":            "[ /] writes [x /x]",
		"sh -c 'cd /'; rm x":               "[] writes [x]",
		"trap 'cd /' DEBUG; rm x":          "[?] writes [?]",
		"cd /etc; trap 'rm x' EXIT":        "[?] writes [?]",
		"true | cd /etc && rm x":           "[?] writes [?]",
		"cd /etc | true; rm x":             "[] writes [x]",
		"cp --parents ../../tmp/x d":       "[] reads [../../tmp/x] writes [d ?]",
		"cp --pa a d":                      "[] reads [a d] writes [a d ?]",
		"ls >& 1-1":                        "[] writes [1-1]",
		"ls 2>&1":                          "[]",
		"ls 3>&1-":                         "[]",
		"ls 2>&-":                          "[]",
		"pushd / && pushd && rm x":         "[?] writes [?]",
		"env -C / -S'rm x'":                "[/] writes [/x]",
		"grep x f ../g":                    "[] reads [f ../g]",
		"dd if=a of=/dev/sda":              "[] reads [a] writes [/dev/sda]",
		"find /etc -delete":                "[] reads [/etc] writes [/etc]",
		"rm -- -x":                         "[] writes [-x]",
		"cat < ~/.ssh/id_rsa":              "[] reads [~/.ssh/id_rsa]",
		"tee a >>b":                        "[] writes [a b]",
		"curl -s https://a.example/x":      "[]",
		"curl -sSLo /etc/H u":              "[] writes [/etc/H]",
		"curl -H -o -o/etc/H u":            "[] writes [/etc/H]",
		"curl --outp /etc/H u":             "[] writes [/etc/H]",
		"curl -XPOST -D /etc/H u":          "[] writes [/etc/H]",
		"curl -sSLO u":                     "[] writes [?]",
		"curl --remote-name u":             "[] writes [?]",
		"curl -K f u":                      "[] writes [?]",
		"curl -sw '%output{/etc/H}x' u":    "[] writes [?]",
		"curl -wx=%output{/etc/H} u":       "[] writes [?]",
		"curl --write-o '%output{>>H}' u":  "[] writes [?]",
		"curl --write-out='%output{H}' u":  "[] writes [?]",
		"curl -w @f u":                     "[] writes [?]",
		"curl -w \"$F\" u":                 "[] writes [?]",
		"curl -sw '%{http_code}' u@h":      "[]",
		"curl --write-out -o /etc/H":       "[]",
		"curl --expand-output /etc/H u":    "[] writes [?]",
		"curl --ssl-sessions /etc/H u":     "[] writes [?]",
		"curl --ssl -o /etc/H u":           "[] writes [/etc/H]",
		"wget -O /etc/H u":                 "[] writes [?]",
		"tar xf a -C /etc":                 "[] writes [?]",
		"cc -o /etc/H a.c":                 "[] writes [?]",
		"openssl rand -out /etc/H 8":       "[] writes [?]",
		"git clone u /etc/H":               "[] writes [?]",
		"git -C /etc checkout H":           "[] writes [?]",
		"git diff --outp=/etc/H":           "[] writes [?]",
		"git -P --git-dir=/etc status":     "[] writes [?]",
		"git -c a=b --work-tree /etc log":  "[] writes [?]",
		"git -c init log":                  "[]",
		"git --namespace init log":         "[]",
		"git $F clone u /etc/H":            "[] writes [?]",
		"git log -p -C -- init":            "[]",
		"git add bundle":                   "[]",
		"git diff HEAD -- submodule":       "[]",
		"git log --author clone":           "[]",
		"git commit -m x":                  "[]",
		"git status -sb":                   "[]",
		"while true; do cd ..; rm x; done": "[?] writes [x ../x ?]",
	} {
		s := Parse(text)
		c := s.Commands[len(s.Commands)-1]
		got := fmt.Sprint(c.Dirs)
		if len(c.Reads) > 0 {
			got += fmt.Sprint(" reads ", c.Reads)
		}
		if len(c.Writes) > 0 {
			got += fmt.Sprint(" writes ", c.Writes)
		}
		if got = strings.ReplaceAll(got, Unknown, "?"); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestOptions(t *testing.T) {
	c := Parse("git push -fu --force-with-lease=x origin").Commands[0]
	if !slices.Equal(c.Options, []string{"-fu", "-f", "-u", "--force-with-lease"}) || !slices.Equal(c.Operands, []string{"push", "origin"}) {
		t.Error(c.Options, c.Operands)
	}
	if c := Parse("rm -vvvvvvvvvvvvvvvvvvvvrf x").Commands[0]; !slices.Contains(c.Options, "-r") || !slices.Contains(c.Options, "-f") {
		t.Error("a long cluster:", c.Options)
	}
	for text, unknown := range map[string]bool{"sort *": true, "sort *.go": true, "ls $x": true, "sort src/*": false, "find . -name '*.go'": false,
		"grep x -- *": false, "grep -e x -- *.go": false, "/bin/fgrep -n p -- *": false, "rg x -- *": false, "sed -n p -- *": true, "grep -- *": false, "grep x -- $x": false,
		"grep -e -- *": true, "grep -- -- *": false, "grep -e -- -- *": true, "grep * -- *": true, "grep $x -- *": true, "grep x$y -- *": true, "grep ?e -- *": true, "grep [-]e -- *": true, "grep x *": true, "find -- *": true, "strings -- *": true, "env grep x -- *": true} {
		if c := Parse(text).Commands[0]; slices.Contains(c.Options, UnknownOption) != unknown {
			t.Errorf("%s: %q", text, c.Options)
		}
	}
	for text, code := range map[string]bool{"python x.py": true, "python3 --version": false, "sed -n '1,5p' f": false, "sed '1e id' f": true, "sed s/a/b/e f": true, "awk '{print $1}' f": false, "awk 'BEGIN{system(1)}'": true, "awk --include=x y": true, "awk 'BEGIN{print ENVIRON[1]}'": true, "awk 'BEGIN{ARGV[1]=1;ARGC=2} 1'": true, "sort --compress-program=x f": true, "rg --pre x f": true, "python3 -v": true, "node -v": false, "./x": true,
		`sed 's#\##;s#e##'`: true, `sed 's#[#]#;s#e##'`: true, `sed '/\/p;s/e id > f #/p/'`: true, `sed -i 's#\##;s#w /etc/x##' f`: true, `sed 's/[]/;s/e/]/'`: true, `sed 's/[^]/;s/e/]/'`: true, `sed 's/[[:x:]/;s/e/]/'`: true,
		`sed 's/a/b/;s/c/d/'`: false, "sed '/^$/d'": false, "sed 's|/a|/b|g'": false, `sed 's/[^a-z]*\.go$/[x/'`: false, `sed 's/[[:space:]]*$//;s/[ \t]*x//'`: false, `sed -n '/\[a\]/,/b/p'`: false,
		"/usr/bin/../bin/ls": false, "/workspace/shop/l/../../../bin/ls": true, "/bin/../workspace/l/../../bin/ls": true, strings.Repeat("/bin/..", 4000) + "/bin/ls": true, "ls": false, "bash x.sh": true, "sh -c ls": false} {
		if s := Parse(text); s.Commands[0].Code != code {
			t.Errorf("%s: code %v", text, !code)
		}
	}
}

// An option of a program that only looks or copies can start another one.
func TestOptionsThatStartPrograms(t *testing.T) {
	for text, code := range map[string]bool{
		"sort --compress-program=x f": true, "sort --co x f": true, "sort f": false, "rg --pre x f": true, "rg --hostname-bin x f": true, "rg pre f": false,
		"rsync -e 'sh -c id' a b:": true, "rsync --rsh=./x a b:": true, "rsync --version": false, "scp -S ./x a b:": true, "scp -o ProxyCommand=id a b:": true, "sftp -D ./x": true,
		"bat --paging=always --pager 'sh -c id' f": true, "bat --pager=x f": true, "bat --paging=never f": false, "bat f": false,
		"split --filter=id f": true, "split --fil id f": true, "split -l 5 f": false, "install -s --strip-program=./x a b": true, "install -m 755 a b": false,
		"zip a b -T -TT x": true, "zip -rTT x a b": true, "zip -r a b": false, "zip a b --unzip-command x": true, "less '+!id' f": true, "less -k x f": true, "less --lesskey-content=x f": true, "less -N f": false, "more '+!id' f": true,
	} {
		if s := Parse(text); s.Commands[0].Code != code {
			t.Errorf("%s: code %v", text, !code)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"ls", "sh -c 'rm x'", "find . -exec rm {} +", "cat <<E | sh\nx\nE\n", "a=$(b `c`) d <(e) ${f:-$(g)}", "{a,b}{c,d}", "if a; then cd b; fi", "env -S 'x'", "case x in y) z;; esac"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := Parse(text)
		if s.Known != (len(s.Reasons) == 0) || s.Size() > 3*maxBytes || len(s.Commands) > maxCommands {
			t.Errorf("%+v", s)
		}
		if again := Parse(text); started(s) != started(again) {
			t.Error("two results")
		}
		for _, c := range s.Commands {
			if c.Name == "" && len(c.Words) > 0 && s.Known {
				t.Errorf("an unknown program in a known script: %q", c.Words)
			}
		}
	})
}

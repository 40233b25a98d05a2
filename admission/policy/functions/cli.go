package functions

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/admission/policy/functions/shell"
)

// View is the arguments of a program with subcommands.
type View struct {
	Known    bool     `cel:"known"`    // the program is in the table, and its subcommand, by its full name, and global options are
	Program  string   `cel:"program"`  // git, kubectl, aws, terraform, …; as the name of a command of shell.parse
	Command  string   `cel:"command"`  // the subcommand with the words that are part of it: "push", "s3 rm", "container rm"; of gcloud and az all words before an option
	Globals  []string `cel:"globals"`  // options before the subcommand, without =value
	Options  []string `cel:"options"`  // options behind it, without =value; of a cluster each letter as well
	Operands []string `cel:"operands"` // the other arguments behind it, options' arguments included
}

// Size implements Sized.
func (v View) Size() int64 {
	n := int64(len(v.Command)) + 128
	for _, list := range [][]string{v.Globals, v.Options, v.Operands} {
		for _, s := range list {
			n += int64(len(s)) + 16
		}
	}
	return n
}

// program is one row of the table.
type program struct {
	takes    []string // global options with an argument
	flags    []string // global options without one
	words    int      // words of a subcommand; 1 if 0
	groups   []string // subcommands of which the next word is part
	commands []string // known subcommands, by their first word and full names, without aliases; nil: any

	optionsLast bool // no option stands between the words of a subcommand
}

// allWords are more words than a subcommand has: all before an option are part of it.
const allWords = 4096

// terraformGroups are subcommands of terraform and tofu that have subcommands.
var terraformGroups = []string{"state", "workspace", "providers", "metadata"}

// Subcommands of several programs, and those of docker that have subcommands.
var (
	pipCommands  = strings.Fields("cache check completion config debug download freeze hash help index inspect install list lock search show uninstall wheel")
	dnfCommands  = strings.Fields("autoremove check check-update clean deplist distro-sync downgrade group help history info install list makecache mark module provides reinstall remove repolist repoquery search shell swap updateinfo upgrade upgrade-minimal")
	dockerGroups = strings.Fields("builder buildx checkpoint compose config container context image manifest model network node plugin scout secret service stack swarm system trust volume")
)

// programs are the programs of which the arguments are understood.
var programs = map[string]program{
	"git": {
		// -c, --config-env and --exec-path are left out: they can run programs, so they make a view unknown.
		takes: []string{"-C", "--git-dir", "--work-tree", "--namespace"},
		flags: []string{"--no-pager", "-P", "--no-replace-objects", "--bare", "--literal-pathspecs", "--no-optional-locks", "--version", "--help", "-v", "-h"},
		commands: strings.Fields("add am annotate apply archive bisect blame branch bundle cat-file check-ignore checkout cherry cherry-pick clean clone commit config count-objects describe diff " +
			"diff-tree fetch filter-branch for-each-ref format-patch fsck gc grep help init log ls-files ls-remote ls-tree merge merge-base mv notes pull push range-diff rebase reflog remote " +
			"replace reset restore rev-list rev-parse revert rm send-email shortlog show show-ref sparse-checkout stash status submodule switch symbolic-ref tag update-index update-ref version worktree"),
	},
	"kubectl": {
		takes: []string{"-n", "--namespace", "--context", "--cluster", "--kubeconfig", "--user", "-s", "--server", "--as", "--token", "--request-timeout", "-v"},
		flags: []string{"--insecure-skip-tls-verify", "-h", "--help"},
		commands: strings.Fields("get describe logs explain top version api-resources api-versions cluster-info config auth diff wait apply create delete edit patch replace scale rollout set label annotate " +
			"expose run exec attach cp port-forward proxy debug drain cordon uncordon taint certificate autoscale kustomize events"),
	},
	"aws":       {takes: []string{"--profile", "--region", "--output", "--endpoint-url", "--query", "--ca-bundle"}, flags: []string{"--no-cli-pager", "--debug", "--no-verify-ssl", "--no-paginate", "--version"}, words: 2},
	"terraform": {groups: terraformGroups, flags: []string{"-version", "-help", "--version"}, commands: strings.Fields("init validate plan apply destroy console fmt force-unlock get graph import login logout metadata modules output providers refresh show state taint test untaint version workspace")},
	"tofu":      {groups: terraformGroups, flags: []string{"-version"}, commands: strings.Fields("init validate plan apply destroy console fmt force-unlock get graph import output providers refresh show state taint test untaint version workspace")},
	"npm": {
		takes: []string{"--prefix", "-C"}, flags: []string{"--silent", "-s", "--version", "-v"},
		commands: strings.Fields("access adduser audit bugs cache ci completion config dedupe deprecate diff dist-tag docs doctor edit exec explain explore find-dupes fund get help help-search init install " +
			"install-ci-test install-test link login logout ls org outdated owner pack ping pkg prefix profile prune publish query rebuild repo restart root run sbom search set shrinkwrap star stars start stop team " +
			"test token trust undeprecate uninstall unpublish unstar update version view whoami"),
	},
	"yarn": { // workspace and workspaces are left out: another subcommand follows
		takes: []string{"--cwd"}, flags: []string{"--silent"}, groups: []string{"npm"},
		commands: strings.Fields("add audit autoclean bin cache config constraints create dedupe dlx exec explain global help import info init install licenses link list login logout node npm outdated owner pack " +
			"patch patch-commit plugin publish rebuild remove run search set stage tag team test unlink unplug up upgrade upgrade-interactive version versions why"),
	},
	"pnpm": {
		takes: []string{"-C", "--dir", "--filter"}, flags: []string{"--silent", "-r", "-w"},
		commands: strings.Fields("add approve-builds audit bin cat-file cat-index config create dedupe deploy dlx doctor env exec fetch help import init install install-test licenses link list outdated pack patch " +
			"patch-commit patch-remove prune publish rebuild remove root run self-update setup start stop store test unlink update why"),
	},
	"pip":  {flags: []string{"--version", "-V", "-q"}, commands: pipCommands},
	"pip3": {flags: []string{"--version", "-V", "-q"}, commands: pipCommands},
	"uv":   {flags: []string{"--version", "-q"}, commands: strings.Fields("add auth build cache export format help init lock pip publish python remove run self sync tool tree venv version")},
	"cargo": {
		flags: []string{"--version", "-V", "-q"},
		commands: strings.Fields("add bench build check clean clippy config doc fetch fix fmt generate-lockfile help info init install locate-project login logout metadata new owner package pkgid publish remove report run " +
			"rustc rustdoc search test tree uninstall update vendor version yank"),
	},
	"go": {takes: []string{"-C"}, commands: strings.Fields("build clean doc env fix fmt generate get install list mod run test tool version vet work bug")},
	"docker": {
		takes:  []string{"--context", "-c", "-H", "--host"},
		groups: dockerGroups,
		commands: append(strings.Fields("attach build commit cp create diff events exec export help history images import info inspect kill load login logout logs pause port ps pull push rename restart rm rmi run save search "+
			"start stats stop tag top unpause update version wait"), dockerGroups...),
	},
	"gh": {
		words: 2, groups: []string{"repo deploy-key", "repo autolink", "codespace ports"}, flags: []string{"--version"},
		commands: strings.Fields("alias api attestation auth browse cache codespace completion config extension gist gpg-key help issue label org pr project release repo ruleset run search secret ssh-key status variable workflow"),
	},
	"helm": {
		takes:    []string{"-n", "--namespace", "--kube-context"},
		commands: strings.Fields("completion create dependency env get help history install lint list package plugin pull push registry repo rollback search show status template test uninstall upgrade verify version"),
	},
	"gcloud": {takes: []string{"--project"}, words: allWords},
	"az":     {words: allWords, optionsLast: true},
	"brew": {commands: strings.Fields("analytics autoremove bundle cat cleanup commands config deps desc doctor fetch formulae help home info install leaves link list log missing outdated pin postinstall reinstall search services " +
		"shellenv source tab tap tap-info uninstall unlink unpin untap update upgrade uses")},
	"apt": {takes: []string{"-o"}, flags: []string{"-y", "-q", "-qq"}, commands: strings.Fields("autoclean autopurge autoremove build-dep changelog clean depends dist-upgrade download edit-sources full-upgrade help install list policy purge " +
		"rdepends reinstall remove satisfy search show showsrc source update upgrade")},
	"apt-get": {takes: []string{"-o"}, flags: []string{"-y", "-q", "-qq"}, commands: strings.Fields("autoclean autopurge autoremove build-dep changelog check clean dist-upgrade download help indextargets install purge reinstall remove satisfy source update upgrade")},
	"apk":     {commands: strings.Fields("add audit cache del dot extract fetch fix index info list manifest policy search stats update upgrade verify version")},
	"dnf":     {flags: []string{"-y"}, commands: dnfCommands},
	"yum":     {flags: []string{"-y"}, commands: append(strings.Fields("update"), dnfCommands...)},
	"gem": {commands: strings.Fields("build cert check cleanup contents dependency environment exec fetch generate_index help info install list lock mirror open outdated owner pristine push query rdoc rebuild search signin signout " +
		"sources specification stale uninstall unpack update which yank")},
	"composer": {commands: strings.Fields("about archive audit browse bump check-platform-reqs clear-cache completion config create-project depends diagnose dump-autoload exec fund global help init install licenses list outdated prohibits " +
		"reinstall remove repository require run-script search self-update show status suggests update validate")},
}

// parseView reads the words of a command.
func parseView(words []string) View {
	v := View{Globals: []string{}, Options: []string{}, Operands: []string{}}
	if len(words) == 0 || len(words) > 4096 {
		return v
	}
	v.Program = shell.ProgramName(words[0]) // ./git is no git
	p, known := programs[v.Program]
	if !known {
		return v
	}
	v.Known = true
	i := 1
	for ; i < len(words) && strings.HasPrefix(words[i], "-"); i++ {
		name, _, joined := strings.Cut(words[i], "=")
		v.Globals = append(v.Globals, name)
		switch {
		case slices.Contains(p.takes, name):
			if !joined {
				i++
			}
		case !slices.Contains(p.flags, name):
			v.Known = false
		}
	}
	left := max(p.words, 1) // words of the subcommand that are not read yet
	for ; left > 0 && i < len(words) && !strings.HasPrefix(words[i], "-"); i++ {
		v.Known = v.Known && words[i] != ""
		v.Command = strings.TrimSpace(v.Command + " " + words[i])
		if left--; slices.Contains(p.groups, v.Command) {
			left++
		}
	}
	first, _, _ := strings.Cut(v.Command, " ")
	if strings.Contains(v.Command, Unknown) || p.commands != nil && first != "" && !slices.Contains(p.commands, first) {
		v.Known = false
	}
	v.readArguments(words[min(i, len(words)):])
	if left > 0 && len(v.Operands) > 0 && !p.optionsLast {
		v.Known = false // an operand behind the options may be a word of the subcommand
	}
	return v
}

func (v *View) readArguments(words []string) {
	letters := map[string]bool{}
	for _, w := range words {
		if strings.Contains(w, Unknown) {
			v.Known = false
		}
		if len(w) < 2 || w[0] != '-' {
			v.Operands = append(v.Operands, w)
			continue
		}
		name, _, _ := strings.Cut(w, "=")
		v.Options = append(v.Options, name)
		for j := 1; w[1] != '-' && len(name) > 2 && j < len(name); j++ {
			if letter := "-" + name[j:j+1]; !letters[letter] {
				letters[letter] = true
				v.Options = append(v.Options, letter)
			}
		}
	}
}

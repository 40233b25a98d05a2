// Command countersign-hook is what a coding agent starts as its hook: countersign-hook AGENT [EVENT].
// It is `countersign hook` in a small program, which starts faster. See package internal/hookgate.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/countersign-dev/countersign/internal/buildinfo"
	"github.com/countersign-dev/countersign/internal/hookgate"
)

const usage = `Usage: countersign-hook AGENT [EVENT] [--config FILE | --managed]

Answer one call of a coding agent's hook: read the agent's JSON from standard input, ask the gateway,
and answer in the agent's dialect. countersign hook install writes the agent's configuration.
`

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	var words []string
	config, managed := "", false
	for len(args) > 0 {
		switch arg := args[0]; {
		case arg == "--help" || arg == "-h":
			fmt.Print(usage)
			return 0
		case arg == "--version":
			fmt.Println(buildinfo.Version())
			return 0
		case arg == "--config" && len(args) > 1:
			config, args = args[1], args[1:]
		case arg == "--managed":
			managed = true
		case strings.HasPrefix(arg, "-"):
			fmt.Fprint(os.Stderr, usage)
			return 2
		default:
			words = append(words, arg)
		}
		args = args[1:]
	}
	if len(words) == 0 || len(words) > 2 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	event := ""
	if len(words) == 2 {
		event = words[1]
	}
	return hookgate.Run(words[0], event, hookgate.ConfigPath(config, managed), hookgate.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
}

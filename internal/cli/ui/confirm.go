package ui

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// Confirmed asks on a terminal. Elsewhere the command itself is the confirmation.
func Confirmed(io Stdio, question string) bool {
	in, isFile := io.In.(*os.File)
	if !isFile || !isatty.IsTerminal(in.Fd()) {
		return true
	}
	fmt.Fprintf(io.Err, "%s [y/N] ", question)
	line, err := bufio.NewReader(in).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return err == nil && (answer == "y" || answer == "yes")
}

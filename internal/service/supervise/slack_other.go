//go:build !linux

package supervise

import "os/exec"

func startWithSlack(cmd *exec.Cmd) error { return cmd.Start() }

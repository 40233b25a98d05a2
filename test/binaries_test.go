package e2e_test

import (
	"debug/buildinfo"
	"debug/elf"
	"os/exec"
	"strings"
	"testing"
)

// TestProgramsRun: every program that was built starts.
func TestProgramsRun(t *testing.T) {
	needPrograms(t)
	for _, p := range programs {
		command(t, exec.Command(program(p), "--help")).want(t, 0)
	}
}

// TestServicesLinkNoEngine: the admitter and the correlator, which hold no
// evidence, hold no ClickHouse either, and run where there is no C library.
func TestServicesLinkNoEngine(t *testing.T) {
	needPrograms(t)
	for _, name := range []string{"admitter", "correlator"} {
		file, err := elf.Open(program(name))
		ok(t, err)
		for _, p := range file.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s is not static", name)
			}
		}
		ok(t, file.Close())
		info, err := buildinfo.ReadFile(program(name))
		ok(t, err)
		for _, m := range info.Deps {
			for _, not := range []string{"ClickHouse", "purego", "nats-server"} {
				if strings.Contains(m.Path, not) {
					t.Errorf("%s links %s", name, m.Path)
				}
			}
		}
	}
}

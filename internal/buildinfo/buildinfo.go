// Package buildinfo reports the version of the running program, for --version and for NATS micro
// services.
package buildinfo

import (
	"runtime/debug"
	"strings"

	"golang.org/x/mod/semver"
)

// version is set by the linker (make build, goreleaser).
var version string

// Version is the version set at build time, otherwise the module's version from the build
// information, otherwise "(devel)".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// SemVer is Version as a semantic version, which NATS micro services require: "0.0.0-devel" for a
// build without one.
func SemVer() string {
	if v := Version(); semver.IsValid(v) {
		return strings.TrimPrefix(v, "v")
	}
	return "0.0.0-devel"
}

//go:build !(linux && amd64)

// Package chdb binds libchdb. A build of libchdb with listeners exists only for linux/amd64;
// on this platform Load always fails.
package chdb

import "errors"

// Library cannot be loaded on this platform.
type Library struct{}

// Load always fails.
func Load(string) (*Library, error) {
	return nil, errors.New("there is no embedded ClickHouse engine for this platform")
}

// Run is never reached.
func (*Library) Run(...string) error { return errors.ErrUnsupported }

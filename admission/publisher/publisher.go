// Package publisher is what a tenant declares about its publishers and tools.
package publisher

// Registry knows manifests and tool catalogues.
type Registry interface {
}

// Package app wires the parts of tutti together. Only this package knows which adapter
// implements which interface.
package app

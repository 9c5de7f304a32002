// Package app wires the parts of tutti together: it alone knows which adapter
// stands behind which interface.
package app

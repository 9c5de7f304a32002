//go:build !killpoints

package killpoint

// Here marks a point whose name consists of the parts. In this build it does nothing.
func Here(...string) {}

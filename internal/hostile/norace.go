//go:build !race

package hostile

// raced reports whether this program was built with the race detector, which multiplies its memory.
const raced = false

//go:build race

package hostile

// raced says that the race detector is in this program, which multiplies its memory.
const raced = true

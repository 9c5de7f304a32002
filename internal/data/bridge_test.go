package data

// IsCanonical and SlowCanonical are the fast check for the canonical encoding,
// and the slow conversion to it.
var (
	IsCanonical   = isCanonical
	SlowCanonical = canonical
)

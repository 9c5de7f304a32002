package data

// IsCanonical and SlowCanonical are the two ways to the canonical encoding.
var (
	IsCanonical   = isCanonical
	SlowCanonical = canonical
)

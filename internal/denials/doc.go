// Package denials limits the entries about refused attempts in the audit trail. A refused caller gets only a few
// entries per minute. Attempts above that are counted. The package writes no entries. Admit reports whether the caller
// should write one, and Due returns the sums.
package denials

// Package denials limits the entries about refused attempts in the audit trail. A refused caller gets only a few
// entries per minute. Further attempts are only counted. The package writes no entries. Admit reports whether the
// caller should write one, and Due returns the sums.
package denials

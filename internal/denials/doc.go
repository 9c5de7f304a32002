// Package denials limits the entries about refused attempts in the audit trail. A refused caller gets only a few
// entries per minute. Further attempts are only counted. The package writes no entries. Admit reports whether the
// caller should write an entry, and Due returns the entries with the counts.
package denials

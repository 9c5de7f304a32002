// Package denials bounds the refused attempts in the audit trail. A refused caller has few entries in a minute. Attempts
// beyond them are counted. It writes no entry itself: Admit says whether there is to be one, and Due returns the sums.
package denials

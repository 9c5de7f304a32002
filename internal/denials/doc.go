// Package denials bounds what the audit trail has of attempts that were refused. Whoever is refused has few entries in a minute, and what
// is beyond them is counted. It writes no entry: Admit says whether there is to be one, and Due returns the sums.
package denials

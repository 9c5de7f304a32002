// Package tutti defines the words of the domain. These are the names, identifiers, outcomes,
// queries and events that every layer uses, the error codes, and the few interfaces that the layers
// share. Package tutti imports only the standard library and performs no I/O.
package tutti

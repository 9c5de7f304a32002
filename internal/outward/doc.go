// Package outward sends the reports of runs to other systems: PuppetDB, Foreman, or an HTTP endpoint (ADR 0037). The log is
// the spool. For each destination a file in the server's directory says which reports are done.
package outward

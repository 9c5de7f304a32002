// Package api defines the requests and answers of operators. Package api contains interfaces, requests and views
// that the server, its HTTP API and the command line share. Package api imports only the root package tutti, and
// performs no I/O.
package api

// Package api defines the requests and answers of operators. It contains interfaces, requests and views that the
// server, its HTTP API and the command line share. It imports only the root package tutti, and performs no I/O.
package api

// Package api is what operators ask the server and what they get: interfaces, requests and views, which the server,
// its HTTP API and the command line share. It imports the words alone, and performs no I/O.
package api

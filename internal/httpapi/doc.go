// Package httpapi provides the operators' interfaces over HTTP. The package contains a
// handler for the server and a Client for operators. Handler and Client use the same table
// of routes and implement the same interfaces. The type Door guards the port. A Door closes
// connections that do not finish TLS.
//
// A call is a POST of JSON to /v1/<name>. Its answer is JSON. An error is an object
// with code and message, and has the HTTP status of the code. A watch answers with
// one JSON object a line. The last line says whether the watch ended without an
// error. If a connection ends without that line, the client returns an error.
package httpapi

// Package httpapi carries the operators' interfaces over HTTP. It has a handler for
// the server and a Client for operators. Both use one table of routes
// and implement the same interfaces. The Door guards the port. It ends
// connections that do not finish TLS.
//
// A call is a POST of JSON to /v1/<name>. Its answer is JSON. An error is an
// object with code and message, and has the HTTP status of the code. A
// watch answers with one JSON object a line. Its last line says
// whether it ended well. A connection that ends without that line is an error.
package httpapi

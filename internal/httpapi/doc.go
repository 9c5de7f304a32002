// Package httpapi carries the operators' interfaces over HTTP: a handler for
// the server's side and a Client for the other, made from one table of routes,
// so that both implement the same interfaces. The Door stands before the port:
// who does not finish TLS gets no further.
//
// A call is a POST of JSON to /v1/<name>; its answer is JSON. An error is an
// object with code and message and the status that belongs to the code. A
// watch answers with one JSON object a line and says with its last line
// whether it ended well: a connection that just ends is an error.
package httpapi

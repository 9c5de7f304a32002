// Package wire defines the messages between agents and the server. The package contains the operations on the
// bus, their messages, and the checks that each side makes of received messages. Package wire imports only the
// root package tutti, and performs no I/O.
package wire

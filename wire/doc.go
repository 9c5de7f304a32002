// Package wire is what agents and the server say to each other: the operations on the bus, their messages, and the
// checks that each side makes of what it got. It imports the words alone, and performs no I/O.
package wire

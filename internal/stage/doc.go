// Package stage has fleets on the hosts of a lab: it starts them, deploys the examples on them, and disturbs them. The demo,
// the commands for labs, tests on hosts and benchmarks share it. How an operator reaches the server, it is told.
package stage

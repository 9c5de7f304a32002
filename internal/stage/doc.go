// Package stage has fleets on the hosts of a lab. It starts them, deploys the examples on them, and disturbs them. The demo,
// the commands for labs, tests on hosts and benchmarks share it. Its callers say how an operator reaches the server.
package stage

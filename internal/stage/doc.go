// Package stage runs fleets on the hosts of a lab. The package starts fleets, deploys the examples on them, and
// disturbs them. The demo, the commands for labs, tests on hosts and benchmarks use this package. The caller supplies
// the code by which an operator reaches the server.
package stage

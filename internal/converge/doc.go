// Package converge decides which nodes of a fleet run Puppet, and when, until all are good
// (DESIGN 5 and 6, ADR 0008). It is pure. The package reads the folds of package engine
// (jobs, runs) and package data (values, exports, who reads what). From them it computes
// the events that the server should append now.
//
// What a node needs follows from its last runs and from the answers of its record:
//
//	nothing   its last run was good, and all that it read is unchanged
//	proof     the same, but under other code or another Puppet
//	apply     anything else
//
// In a job, the order of the nodes follows from what they read and publish. If this is not
// known for a node that needs something, the node compiles first. The message that it sends
// at its gate shows for which nodes it waits, and which nodes wait for it. When a node
// waits for no other node, it applies (see order.go).
package converge

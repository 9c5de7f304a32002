// Package converge decides which nodes of a fleet run Puppet, and when, until all are
// good (DESIGN 5 and 6, ADR 0008). It is pure. The package reads the folds of package
// engine (jobs, runs) and package data (values, exports, who reads what). It returns the
// events that the server should append now.
//
// What a node needs follows from its last runs and from the answers of its record:
//
//	nothing   its last run was good, and all that it read is unchanged
//	proof     the same, but under other code or another Puppet
//	apply     anything else
//
// In a job, a node that needs something compiles first, unless its reads and exports are
// known. The compile's message at the gate shows for which nodes this node waits, and which
// nodes wait for this node. A node without predecessors applies (see order.go).
package converge

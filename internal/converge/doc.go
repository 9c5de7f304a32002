// Package converge decides which nodes of a fleet run Puppet, and when, until all
// are good (DESIGN 5 and 6, ADR 0008). It is pure: it reads the folds of package
// engine (jobs, runs) and package data (values, exports, who reads what), and says
// which events should be appended now.
//
// What a node needs follows from its last runs and from the answers of its record:
//
//	nothing   its last run was good, and all that it read is unchanged
//	proof     the same, but under other code or another Puppet
//	apply     anything else
//
// In a job, a node that needs something first compiles, unless what it reads and
// exports is known. What it hands over at its gate says which nodes it waits for, and which
// wait for it. A node without predecessors goes; see order.go.
package converge

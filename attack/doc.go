// Package attack has no code but tests. Each plays somebody who wants in: with
// nothing, with credentials of somebody else or of another fleet, or with those of
// a node that has been taken over. They attack the real program on loopback. An
// attack must be refused, be in the audit log, and leave the fleet as it is: a job
// of two nodes passes before, during and after it.
package attack

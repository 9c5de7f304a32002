// Package doctor says what is wrong with a machine of a fleet: what it found,
// what that means, and the command that mends it. It looks at facts that others
// have gathered, and changes nothing.
package doctor

import (
	"cmp"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Finding is something that is wrong, or soon will be.
type Finding struct {
	Check string `json:"check"`
	What  string `json:"what"`  // was found
	Means string `json:"means"` // for the fleet
	Mend  string `json:"mend"`  // a command, or what to do
	// Hint: nothing is wrong, and it could be better.
	Hint bool `json:"hint,omitempty"`
}

// Facts are what is known of this machine. A part that is nil does not live here.
type Facts struct {
	Now      time.Time
	Version  string // of this binary
	Server   *Server
	Node     *Node
	Operator *Operator
}

// Process is a server or an agent and its unit.
type Process struct {
	Dir         string
	Unit        string // of systemd; empty: systemd does not run here
	Enabled     bool   // at every boot
	Running     bool   // something holds the directory's lock
	Replaced    bool   // the binary that it runs is no longer that on disk
	Pids        []int  // of all processes of its kind for this directory
	Free, Keeps uint64 // bytes of the disk; what it keeps for what has begun
	Exposed     []string
	Said        string // the last words of the unit
}

// Credential is something that ends.
type Credential struct {
	Name   string
	File   string
	Ends   time.Time
	Notice time.Duration // how long before its end it is a finding
	Mend   string
}

// Link is the way to a server.
type Link struct {
	Address string
	Err     error // why it was not reached
	WrongCA bool  // somebody else answers there
	Time    time.Time
}

// Server is what lives in a server's directory.
type Server struct {
	Process
	Credentials []Credential
	SyncAlways  bool
	Log         error // why the log does not have what was acknowledged
	Nodes       []api.NodeView
	Asked       error     // why it was not asked for them
	Made        time.Time // its directory
	Backup      time.Time // the last one; zero: none was made here
	Scrubbed    time.Time // when the stored content was read last, to find damage; zero: never
	Damaged     []string  // what was found then
	Rotation    api.CARotation
}

// Node is what lives in an agent's directory.
type Node struct {
	Process
	Name        tutti.NodeName
	Credentials []Credential
	Link        Link
	Puppet      error // why there is none
	Certname    Certname
	Module      string // what is wrong with the shipped module
	Locks       []Lock
	Unended     []tutti.RunID // begun, not ended, and without a process
	Unsent      []tutti.RunID // ended, and the server does not have the result
	Refused     []tutti.RunID // ended, the server did not take the result, and no later run ended otherwise
	Slow        []Fact        // in each of its last runs, the most first
	FacterConf  string        // where Facter is told what to remember
}

// Fact is one that takes long, or a group of them, by its name in facter.conf.
type Fact struct {
	Name string
	Cost time.Duration
}

// Certname is the name that Puppet has for this machine; empty: unknown.
type Certname struct {
	Name       string
	Configured bool // puppet.conf says it
}

// Lock is a lock file whose owner is gone.
type Lock struct {
	Path string
	PID  int
}

// Operator is what lives in an operator's directory.
type Operator struct {
	Dir         string
	Name        string
	Credentials []Credential
	Link        Link
	Asked       error // what the server said to this operator
}

// check looks at one thing.
type check struct {
	name string
	look func(f Facts) []Finding
}

// Names are the checks, in their order.
func Names() []string {
	var out []string
	for _, c := range checks {
		out = append(out, c.name)
	}
	return out
}

// Examine returns what is wrong, in the order of the checks.
func Examine(f Facts) []Finding {
	var out []Finding
	for _, c := range checks {
		for _, found := range c.look(f) {
			found.Check = cmp.Or(found.Check, c.name)
			out = append(out, found)
		}
	}
	return out
}

// Package doctor reports problems of a machine in a fleet. Each finding says what doctor found, what this means, and
// which command repairs it. The package examines facts that other packages have gathered, and changes nothing.
package doctor

import (
	"cmp"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Finding is something that is wrong now or will be wrong soon.
type Finding struct {
	Check string `json:"check"`
	What  string `json:"what"`  // what was found
	Means string `json:"means"` // what it means for the fleet
	Mend  string `json:"mend"`  // a command, or another instruction
	// Hint is true if nothing is wrong, but something could be better.
	Hint bool `json:"hint,omitempty"`
}

// Facts are what is known about this machine. A nil part means that this machine does not have
// the part.
type Facts struct {
	Now      time.Time
	Version  string // version of this binary
	Server   *Server
	Node     *Node
	Operator *Operator
}

// Process is a server or an agent and its unit.
type Process struct {
	Dir         string
	Unit        string // the systemd unit; empty: systemd does not run here
	Enabled     bool   // the unit starts at every boot
	Running     bool   // a process holds the directory's lock
	Replaced    bool   // the binary of the process differs from the binary on disk
	Pids        []int  // all processes of its kind for this directory
	Free, Keeps uint64 // free bytes of the disk, and the bytes reserved for work that has begun
	Exposed     []string
	Said        string // the last lines of the unit's log
}

// Credential is a credential that has an end date.
type Credential struct {
	Name   string
	File   string
	Ends   time.Time
	Notice time.Duration // doctor reports the credential this long before its end
	Mend   string
}

// Link is the connection to a server.
type Link struct {
	Address string
	Err     error // the reason why the server was not reached
	WrongCA bool  // another server answers there
	Time    time.Time
}

// Server is what is known about a server's directory.
type Server struct {
	Process
	Credentials []Credential
	SyncAlways  bool
	Log         error // the reason why the log lacks acknowledged events
	Nodes       []api.NodeView
	Asked       error     // the reason why the nodes are not known
	Made        time.Time // when the server's directory was made
	Backup      time.Time // the last backup; zero: no backup was made here
	Scrubbed    time.Time // when the last scrub read the stored content to find damage; zero: never
	Damaged     []string  // what the scrub found
	Rotation    api.CARotation
	Reports     []Reports // the destinations of reports
	ReportsBad  error     // the reason why the destinations are not known
}

// Reports says what has happened for a destination of reports.
type Reports struct {
	Name                     string
	Waiting, Parked, Dropped int
	Error                    string    // the reason why reports wait
	Since                    time.Time // when the first request failed
}

// Node is what is known about an agent's directory.
type Node struct {
	Process
	Name        tutti.NodeName
	Credentials []Credential
	Link        Link
	Puppet      error // the reason why there is no Puppet
	Certname    Certname
	Module      string // the problem of the shipped module
	Locks       []Lock
	Unended     []tutti.RunID // runs that have begun and have neither an end nor a process
	Unsent      []tutti.RunID // runs that have ended and whose results the server does not have
	Refused     []tutti.RunID // runs whose results the server refused; it has accepted no result of a later run
	Slow        []Fact        // facts that were slow in each of the last runs, the slowest first
	FacterConf  string        // the file that tells Facter which facts to cache
}

// Fact is a slow fact or group of facts, by its name in facter.conf.
type Fact struct {
	Name string
	Cost time.Duration
}

// Certname is the name that Puppet has for this machine. Certname is empty if it is
// unknown.
type Certname struct {
	Name       string
	Configured bool // puppet.conf sets the name
}

// Lock is a lock file whose owner is gone.
type Lock struct {
	Path string
	PID  int
}

// Operator is what is known about an operator's directory.
type Operator struct {
	Dir         string
	Name        string
	Credentials []Credential
	Link        Link
	Asked       error // the server's error for this operator
}

// check is one check of the facts.
type check struct {
	name string
	look func(f Facts) []Finding
}

// Names returns the names of the checks, in their order.
func Names() []string {
	var out []string
	for _, c := range checks {
		out = append(out, c.name)
	}
	return out
}

// Examine returns the findings in the order of the checks.
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

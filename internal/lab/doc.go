// Package lab makes real hosts on one Linux machine: each boots Debian's own
// systemd and has its own network, so that Puppet, apt and services behave on
// it as they do on a server, and four of them are there within seconds.
//
// # What a host is
//
// A base is a directory with a bootstrapped Debian and the packages that a lab
// file bakes in, cached under the digest of its Definition. A host is an overlay
// over a base, a network namespace joined to the lab's bridge, and a
// systemd-nspawn in a control group of its own. The overlay is mounted inside
// the mount namespace of the host's own processes: it ends with them.
//
// A host with a Preparation has a base of its own. To build it, the host boots in a
// lab of its own, runs the script and is switched off; its overlay is copied into
// one directory. Such a base is used like any other.
//
// # What remains when a command is killed
//
// Everything that a lab makes on the outer machine carries a name that follows
// from the lab's state file, and the state file is on disk before the first of
// them is made. So Down needs no memory of what Up got to: it removes every name
// of the state file, whether it exists or not, and the state file last. Base
// building and Chroot run in a process and mount namespace that dies with the
// command, and a base gets its final name by a rename when it is complete. The lab
// of a preparation has a guard: a process that runs Down when the builder has ended.
//
// # Rejected
//
// A container engine was rejected because its images do not boot systemd, and
// because installing one changes the firewall of the machine for good. Named
// network namespaces of ip-netns were rejected because the first of them leaves
// a mount on /run/netns that stays after the last is gone.
package lab

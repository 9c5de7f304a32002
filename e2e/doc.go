// Package e2e holds the tests on lab hosts: the real binary, real Puppet, real
// systemd. They need root and the build tag e2e; see `make e2e`.
package e2e

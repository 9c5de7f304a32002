// Package e2e contains the tests on lab hosts, with the real binary, real Puppet and real systemd.
// The tests need root and the build tag e2e. The command `make e2e` runs the tests.
package e2e

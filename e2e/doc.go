// Package e2e contains the tests on lab hosts, with the real binary, real Puppet and real systemd.
// They need root and the build tag e2e; see `make e2e`.
package e2e

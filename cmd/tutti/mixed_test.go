//go:build e2e

package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tutti-project/tutti/internal/release"
)

// TestMixedOnLoopback lets this release and the last release work together, with the scripts' fake
// Ruby. LAST is the last release. STRICT is a server of this release. STRICT assumes that agents of
// the last release do not know `debug`. TestMixedReleases (e2e) does the same with a real Puppet.
func TestMixedOnLoopback(t *testing.T) {
	const root = "../.."
	all, err := release.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	last, strict := filepath.Join(dir, "last"), filepath.Join(dir, "strict")
	if err := all[0].BuildFrom(t.Context(), root, dir, last); err != nil {
		t.Fatal(err)
	}
	if err := release.Build(t.Context(), root, strict, release.WithoutDebug); err != nil {
		t.Fatal(err)
	}
	params := scripts("../../script/mixed")
	params.Setup = func(env *testscript.Env) error {
		env.Setenv("LAST", last)
		env.Setenv("STRICT", strict)
		return setup(env)
	}
	testscript.Run(t, params)
}

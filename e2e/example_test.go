//go:build e2e

package e2e_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// exampleFleet returns the fleet of an example, on its own hosts. exampleFleet can have spare hosts
// that have not joined. With E2E_BARE the host images contain only Puppet and its modules. Puppet
// then downloads and installs everything else, which takes minutes.
func exampleFleet(t *testing.T, example string, spare ...string) *stage.LabFleet {
	t.Helper()
	dir := "../examples/" + example
	spec := mustReadSpec(t, dir+"/lab.yaml")
	spec.Name = exampleLab(example)
	if os.Getenv("E2E_BARE") != "" {
		spec.Packages = slices.DeleteFunc(spec.Packages, func(p string) bool { return !strings.HasPrefix(p, "puppet-") })
	}
	for _, name := range spare {
		spec.Hosts = append(spec.Hosts, lab.HostSpec{Name: name})
	}
	running := bootLab(t, spec)
	members := *running
	members.Hosts = slices.DeleteFunc(slices.Clone(running.Hosts), func(h *lab.Host) bool { return slices.Contains(spare, h.Name) })
	f, err := startFleet(t.Context(), &members, "tutti", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f.Lab = running
	if err := f.Push(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return f
}

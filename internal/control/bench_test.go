package control_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/control"
)

// BenchmarkBuild puts an environment with 60 modules of 41 files together. Half of the modules are at a tag, and half at a
// branch, for which the command asks each time (docs/benchmarks.md).
func BenchmarkBuild(b *testing.B) {
	site := newRepo(b)
	var puppetfile strings.Builder
	var modules []repo
	for i := range 60 {
		m := newRepo(b)
		var files []string
		for j := range 40 {
			files = append(files, fmt.Sprintf("manifests/c%d.pp", j), fmt.Sprintf("class m%d::c%d { notify { 'x': } }\n", i, j))
		}
		m.commit("one", append(files, "files/large", strings.Repeat(fmt.Sprintf("%d\n", i), 10_000))...)
		m.git("tag", "v1")
		ref := "tag: 'v1'"
		if i%2 == 0 {
			ref = "branch: 'production'"
		}
		fmt.Fprintf(&puppetfile, "mod 'm%d', git: '%s', %s\n", i, m.url(), ref)
		modules = append(modules, m)
	}
	site.commit("one", "manifests/site.pp", "node default { }\n", "Puppetfile", puppetfile.String())
	in := control.Request{Cache: control.Cache{Dir: b.TempDir()}, Repository: site.url()}
	build(b, in)
	b.Run("nothing changed", func(b *testing.B) {
		for b.Loop() {
			if _, err := control.Build(b.Context(), in); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("a module and the site changed", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			modules[0].commit("more", "manifests/c0.pp", fmt.Sprintf("# %d\n", i))
			site.commit("more", "manifests/site.pp", fmt.Sprintf("# %d\n", i))
			b.StartTimer()
			if _, err := control.Build(b.Context(), in); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("an empty cache", func(b *testing.B) {
		for b.Loop() {
			fresh := in
			fresh.Cache.Dir = filepath.Join(b.TempDir(), "cache")
			if _, err := control.Build(b.Context(), fresh); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := os.RemoveAll(fresh.Cache.Dir); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}

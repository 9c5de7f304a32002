package puppetmodule

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// onDisk lists the files of the source directory that belong to the module.
func onDisk(t *testing.T) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		top, _, _ := strings.Cut(path, string(filepath.Separator))
		switch top {
		case "bin", "lib", "metadata.json", "README.md", "REFERENCE.md":
			paths = append(paths, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestFilesAreTheModule(t *testing.T) {
	var got []string
	err := fs.WalkDir(Files(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := os.ReadFile(filepath.FromSlash(path))
		if err != nil {
			return err
		}
		have, err := fs.ReadFile(Files(), path)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(string(want), string(have)); diff != "" {
			t.Errorf("%s differs from the source (-want +got):\n%s", path, diff)
		}
		got = append(got, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(onDisk(t), got); diff != "" {
		t.Errorf("embedded files (-want +got):\n%s", diff)
	}
	for _, path := range []string{"bin/puppet-tutti", "lib/puppet_x/tutti/launcher.rb", "lib/puppet/functions/tutti/value.rb"} {
		if _, err := fs.Stat(Files(), path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestMetadata(t *testing.T) {
	content, err := fs.ReadFile(Files(), "metadata.json")
	if err != nil {
		t.Fatal(err)
	}
	var metadata struct{ Name, Version, License string }
	if err := json.Unmarshal(content, &metadata); err != nil {
		t.Fatal(err)
	}
	if metadata.Name != "tutti-tutti" || metadata.License != "Apache-2.0" || metadata.Version == "" {
		t.Errorf("metadata.json = %+v", metadata)
	}
}

func TestDigest(t *testing.T) {
	if !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(Digest()) {
		t.Errorf("Digest() = %q", Digest())
	}
	if Digest() != Digest() {
		t.Error("two digests of one module differ")
	}
}

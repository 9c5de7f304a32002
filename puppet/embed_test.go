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
		case "bin", "lib", "manifests", "metadata.json":
			paths = append(paths, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestFSIsTheModule(t *testing.T) {
	var got []string
	err := fs.WalkDir(FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := os.ReadFile(filepath.FromSlash(path))
		if err != nil {
			return err
		}
		have, err := fs.ReadFile(FS(), path)
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
		if _, err := fs.Stat(FS(), path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestMetadata(t *testing.T) {
	content, err := fs.ReadFile(FS(), "metadata.json")
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
	first, err := Digest()
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(first) {
		t.Errorf("Digest() = %q", first)
	}
	second, err := Digest()
	if err != nil || second != first {
		t.Errorf("Digest() = %q, %v; before it was %q", second, err, first)
	}
}
